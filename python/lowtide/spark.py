"""Replays and searches on Apache Spark: rows go to the executors as Arrow, and the same code runs there as on one machine.

    telemetry = spark.read.parquet("telemetry")        # day and host are columns, as folders are partitions
    lowtide.spark.replay(telemetry)["policies"]
    lowtide.spark.tune(telemetry, policy="promotion")

A host is the unit of work: its rows go to one task, in the order of time. What comes back of it are whole numbers, and they add up
to the same in any order, so the result is that of `lowtide.replay` to the last digit.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import pyarrow as pa
from pyspark.sql import DataFrame

from . import FILE_COST, KEPT, SWAP_COST, _lowtide
from ._search import search

__all__ = ["replay", "tune"]

#: What a replay does not read beside `host`; nothing of it is sent. Labels are, where they are asked for.
_NOT_READ = {"day", "host", "labels", "policy", "stalled"}


def _hosts(df: DataFrame, policy: Optional[str], swap_cost: float, file_cost: float, by: Optional[str] = None) -> List[str]:
    """What came of each host."""
    not_read = _NOT_READ - {"labels"} if by else _NOT_READ
    columns = [name for name in df.columns if name not in not_read]

    def one(rows: pa.Table) -> pa.Table:
        from lowtide import _lowtide as kernel

        host = rows.column("host")[0].as_py()
        rows = rows.drop_columns(["host"]).sort_by([("time_s", "ascending"), ("workload", "ascending")])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=8192)
        told = kernel.replay_host(str(host), sink.getvalue().to_pybytes(), policy, swap_cost, file_cost, by)
        return pa.table({"host": [str(host)], "told": [told]})

    grouped = df.select("host", *columns).groupBy("host")
    told = grouped.applyInArrow(one, schema="host string, told string").collect()
    return [row["told"] for row in told]


def replay(
    df: DataFrame,
    policies: Optional[str] = None,
    *,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
    by: Optional[str] = None,
) -> Dict[str, Any]:
    """What policies (the text of a policy's file; without one, those that need none) would have made of telemetry with a column `host`.

    `by` is a label by which workloads are told apart.
    """
    hosts = _hosts(df, policies, swap_cost, file_cost, by)
    return json.loads(_lowtide.combine(hosts, policies, kept, price, by))["told"]


def tune(
    df: DataFrame,
    policy: str = "promotion",
    *,
    rate: float = 0.002,
    tries: int = 96,
    seed: int = 1,
    swap_cost: float = SWAP_COST,
    file_cost: float = FILE_COST,
    kept: float = KEPT,
    price: Optional[float] = None,
) -> Dict[str, Any]:
    """The settings with which a policy saves most while no more than `rate` of what is used comes back in a minute (98th percentile)."""
    hosts = [str(row["host"]) for row in df.select("host").distinct().collect()]

    def replays(some: List[str], policies: str) -> List[str]:
        return _hosts(df.where(df["host"].isin(some)), policies, swap_cost, file_cost)

    costs_s = {"swap_cost": swap_cost, "file_cost": file_cost}
    return search(hosts, replays, policy, rate=rate, tries=tries, seed=seed, kept=kept, price=price, **costs_s)
