"""lowtide for Python: what a record says, and what policies would have made of a fleet's telemetry.

    import lowtide

    lowtide.table("record", "usage").to_pandas()       # pyarrow, and from there pandas or Polars
    lowtide.curve("record")                            # memory against slowdown
    lowtide.budget("record", slowdown=0.02)
    lowtide.replay("telemetry", price=3)["policies"]
    lowtide.tune("telemetry", policy="promotion")["tuned"]["toml"]

The same code as the command's answers: figures are the same to the last digit.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List, Optional, Union

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from . import _lowtide

__all__ = ["budget", "curve", "replay", "summary", "table", "telemetry", "tune"]
__version__: str = _lowtide.__version__

Path = Union[str, "os.PathLike[str]"]

#: What a page costs that comes back, seconds: from swap (zram), and from a file on a fast disk.
SWAP_COST = 10e-6
FILE_COST = 100e-6
#: What paged out memory takes where it is kept, as a share of its size.
KEPT = 0.33
#: Candidates of a search.
TRIES: int = _lowtide.TRIES


def table(record: Path, name: str) -> pa.Table:
    """A table of a record: usage, ages, cohort, regions, cgroups, nodes or actions. Of one that is not finished, what is there so far."""
    folder = pathlib.Path(record)
    whole = folder / f"{name}.parquet"
    if whole.exists():
        return pq.read_table(whole)
    parts = sorted((folder / "parts").glob(f"{name}-*.parquet")) if (folder / "parts").is_dir() else []
    if not parts:
        raise FileNotFoundError(f"{folder}: no table {name}")
    return pa.concat_tables([pq.read_table(part) for part in parts], promote_options="default")


def telemetry(folder: Path) -> ds.Dataset:
    """Telemetry as one table, with `day` and `host` as columns; nothing is read yet."""
    parts = ds.partitioning(pa.schema([("day", pa.string()), ("host", pa.string())]), flavor="hive")
    return ds.dataset(str(folder), format="parquet", partitioning=parts)


def summary(record: Path) -> Dict[str, Any]:
    """The summary of a record: `summary.json`."""
    return json.loads(_lowtide.summary(os.fspath(record)))


def curve(record: Path) -> Optional[pa.Table]:
    """The tide curve: for each idle age what would be gone, kept and back, and the slowdown. None where the record has none."""
    points: Optional[List[Dict[str, float]]] = json.loads(_lowtide.curve(os.fspath(record)))
    return None if points is None else pa.Table.from_pylist(points)


def budget(record: Path, slowdown: float = 0.02, swap: Optional[bool] = None) -> Dict[str, Dict[str, Any]]:
    """Budgets of a program by mechanism; `slowdown` is the share of the time that may be lost. Swap is counted on where it
    was there when the record was made, and is here; `swap` counts on as much as it takes, or on none."""
    result = json.loads(_lowtide.budget(os.fspath(record), slowdown, swap))
    return {one["mechanism"]: one for one in result}


def replay(
    folder: Path,
    policy: Optional[str] = None,
    *,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
    by: Optional[str] = None,
    threads: Optional[int] = None,
) -> Dict[str, Any]:
    """What policies (the text of a policy's file; without one, those that need none) would have made of telemetry in a folder.

    `by` is a label by which workloads are distinguished. A URL (s3://, gs://) is read as `lowtide.store` does.
    """
    if "://" in os.fspath(folder):
        from . import store

        given = {"swap_cost": swap_cost, "file_cost": file_cost, "kept": kept}
        return store.replay(os.fspath(folder), policy, price=price, by=by, threads=threads, **given)
    result = _lowtide.replay_folder(os.fspath(folder), policy, swap_cost, file_cost, kept, price, by, threads)
    return json.loads(result)["result"]


def tune(
    folder: Path,
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
    if "://" in os.fspath(folder):
        from . import store

        given = {"swap_cost": swap_cost, "file_cost": file_cost, "kept": kept}
        return store.tune(os.fspath(folder), policy, rate=rate, tries=tries, seed=seed, price=price, threads=threads, **given)
    result = json.loads(
        _lowtide.tune_folder(os.fspath(folder), policy, rate, tries, seed, swap_cost, file_cost, kept, price, threads)
    )
    return {**result["result"], "tuned": result["tuned"]}
