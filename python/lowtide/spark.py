"""Replays and searches on Apache Spark: the same code runs in the executors as on one machine.

    lowtide.spark.replay("s3://bucket/telemetry")["policies"]       # executors fetch the files themselves: the fast way
    telemetry = spark.read.parquet("telemetry")                     # or rows of any table, which go to the executors as Arrow
    lowtide.spark.replay(telemetry)["policies"]
    lowtide.spark.tune(telemetry, policy="promotion")

A host is the unit of work: its rows go to one task, in the order of time. What comes back of it are whole numbers, and they add up
to the same in any order, so the result is that of `lowtide.replay` to the last digit.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Callable, Dict, List, Optional, Union

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from . import FILE_COST, KEPT, SWAP_COST, TRIES, _lowtide
from ._search import search
from .store import Fleet, fetched

__all__ = ["replay", "tune"]

#: Rows of a table with a column `host`; or where files are that all executors reach: a folder, or a URL.
Telemetry = Union[DataFrame, str, "os.PathLike[str]"]
#: The results of some hosts (of all, if none are named) under policies of a file's text, distinguished by a label.
_Replays = Callable[[Optional[List[str]], Optional[str], Optional[str]], List[str]]

#: What a replay does not read beside `host`; nothing of it is sent. Labels are, where they are asked for.
_NOT_READ = {"day", "host", "labels", "policy", "stalled"}
#: Tasks for each core, so that one that takes long is not waited for by all others.
_TASKS = 4


def _of_table(df: DataFrame, swap_cost: float, file_cost: float) -> _Replays:
    def replays(some: Optional[List[str]], policy: Optional[str], by: Optional[str]) -> List[str]:
        not_read = _NOT_READ - {"labels"} if by else _NOT_READ
        columns = [name for name in df.columns if name not in not_read]

        def one(rows: pa.Table) -> pa.Table:
            from lowtide import _lowtide as kernel

            host = str(rows.column("host")[0].as_py())
            rows = rows.drop_columns(["host"]).sort_by([("time_s", "ascending"), ("workload", "ascending")])
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows, max_chunksize=1024)
            result = kernel.replay_host(host, sink.getvalue().to_pybytes(), policy, swap_cost, file_cost, by)
            return pa.table({"host": [host], "result": [result]})

        wanted = df if some is None else df.where(df["host"].isin(some))
        result = wanted.select("host", *columns).groupBy("host").applyInArrow(one, schema="host string, result string")
        return [row["result"] for row in result.collect()]

    return replays


def _of_files(fleet: Fleet, swap_cost: float, file_cost: float) -> _Replays:
    session = SparkSession.getActiveSession()
    if session is None:
        raise ValueError("there is no Spark session; make one first")
    context, url = session.sparkContext, fleet.url

    def replays(some: Optional[List[str]], policy: Optional[str], by: Optional[str]) -> List[str]:
        def one(work: Any) -> str:
            from lowtide import _lowtide as kernel

            host, paths = work
            store, _ = fs.FileSystem.from_uri(url)
            return kernel.replay_files(host, fetched(store, paths), policy, swap_cost, file_cost, by)

        works = [(host, fleet.hosts[host]) for host in (fleet.hosts if some is None else some)]
        tasks = max(1, min(len(works), _TASKS * context.defaultParallelism))
        result: List[str] = context.parallelize(works, tasks).map(one).collect()
        return result

    return replays


def _fleet(place: Union[str, "os.PathLike[str]"]) -> Fleet:
    name = os.fspath(place)
    return Fleet(name if "://" in name else pathlib.Path(name).resolve().as_uri())


def replay(
    telemetry: Telemetry,
    policies: Optional[str] = None,
    *,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
    by: Optional[str] = None,
) -> Dict[str, Any]:
    """What policies (the text of a policy's file; without one, those that need none) would have made of telemetry.

    `by` is a label by which workloads are distinguished.
    """
    if isinstance(telemetry, DataFrame):
        replays = _of_table(telemetry, swap_cost, file_cost)
    else:
        replays = _of_files(_fleet(telemetry), swap_cost, file_cost)
    result: Dict[str, Any] = json.loads(_lowtide.combine(replays(None, policies, by), policies, kept, price, by))["result"]
    return result


def tune(
    telemetry: Telemetry,
    policy: str = "promotion",
    *,
    rate: float = 0.002,
    tries: int = TRIES,
    seed: int = 1,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
) -> Dict[str, Any]:
    """The settings with which a policy saves most while no more than `rate` of what is used comes back in a minute (98th percentile)."""
    if isinstance(telemetry, DataFrame):
        hosts = [str(row["host"]) for row in telemetry.select("host").distinct().collect()]
        replays = _of_table(telemetry, swap_cost, file_cost)
    else:
        fleet = _fleet(telemetry)
        hosts, replays = list(fleet.hosts), _of_files(fleet, swap_cost, file_cost)

    def of(some: List[str], policies: str) -> List[str]:
        return replays(some, policies, None)

    costs_s = {"swap_cost": swap_cost, "file_cost": file_cost}
    return search(hosts, of, policy, rate=rate, tries=tries, seed=seed, kept=kept, price=price, **costs_s)
