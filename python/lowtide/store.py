"""Replays and searches over telemetry in an object store, or any other place that pyarrow knows.

    lowtide.replay("s3://bucket/telemetry?endpoint_override=http://127.0.0.1:9000")

Files are fetched one by one as they are replayed, several hosts at a time, and nothing is kept. One that the store does not give is
counted and named, as one that is broken.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from . import FILE_COST, KEPT, SWAP_COST, TRIES, _lowtide
from ._search import search

__all__ = ["replay", "tune"]

#: day=2026-11-22/host=NAME/FIRST-LAST.parquet; hidden ones are not whole yet.
_FILE = re.compile(r"(?:^|/)(day=[^/]+)/host=([^/]+)/(?!\.)([^/]+\.parquet)$")


def _order(name: str) -> Tuple[bool, int, str]:
    """Files of a day, by the time of the first row, by their names."""
    first = re.split("[-.]", name)[0]
    return (first.isdigit(), int(first) if first.isdigit() else 0, name)


def plain(url: str) -> str:
    """A place as it may be shown: without keys."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def fetched(store: fs.FileSystem, paths: List[str]) -> Iterator[Tuple[str, Optional[bytes], str]]:
    """Files of a store by name, or why it does not give them; one in memory at a time."""
    for path in paths:
        try:
            with store.open_input_stream(path) as stream:
                yield path, stream.read(), ""
        except (OSError, pa.ArrowException) as error:
            yield path, None, str(error)


class Fleet:
    """Hosts of a store with the paths of their files, in the order of time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store, root = fs.FileSystem.from_uri(url)
        found: Dict[str, List[Tuple[str, Tuple[bool, int, str], str]]] = {}
        for info in self.store.get_file_info(fs.FileSelector(root.rstrip("/"), recursive=True)):
            match = _FILE.search(info.path) if info.type == fs.FileType.File else None
            if match:
                found.setdefault(match[2], []).append((match[1], _order(match[3]), info.path))
        self.hosts = {host: [path for *_, path in sorted(files)] for host, files in sorted(found.items())}
        if not self.hosts:
            raise ValueError(f"{plain(url)}: no day=.../host=... in it")

    def replays(
        self, hosts: List[str], policy: Optional[str], swap_cost: float, file_cost: float, by: Optional[str], threads: Optional[int]
    ) -> List[str]:
        def one(host: str) -> str:
            return _lowtide.replay_files(host, fetched(self.store, self.hosts[host]), policy, swap_cost, file_cost, by)

        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            return list(pool.map(one, hosts))


def replay(
    url: str,
    policy: Optional[str] = None,
    *,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
    by: Optional[str] = None,
    threads: Optional[int] = None,
) -> Dict[str, Any]:
    """What policies (the text of a policy's file; without one, those that need none) would have made of telemetry in a store.

    `by` is a label by which workloads are distinguished.
    """
    fleet = Fleet(url)
    hosts = fleet.replays(list(fleet.hosts), policy, swap_cost, file_cost, by, threads)
    result: Dict[str, Any] = json.loads(_lowtide.combine(hosts, policy, kept, price, by))["result"]
    return {**result, "dir": plain(url)}


def tune(
    url: str,
    policy: str = "promotion",
    *,
    rate: float = 0.002,
    tries: int = TRIES,
    seed: int = 1,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
    threads: Optional[int] = None,
) -> Dict[str, Any]:
    """The settings with which a policy saves most while no more than `rate` of what is used comes back in a minute (98th percentile)."""
    fleet = Fleet(url)

    def replays(some: List[str], policies: str) -> List[str]:
        return fleet.replays(some, policies, swap_cost, file_cost, None, threads)

    costs_s = {"swap_cost": swap_cost, "file_cost": file_cost}
    result = search(list(fleet.hosts), replays, policy, rate=rate, tries=tries, seed=seed, kept=kept, price=price, **costs_s)
    return {**result, "dir": plain(url)}
