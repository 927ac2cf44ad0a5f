"""The promotion policy written as SQL, beside lowtide's replay of it: `fleet_sql.py LOWTIDE TELEMETRY`, with duckdb from PyPI.

The same model but for what SQL has no state for: brakes, and that what is gone stays gone while its age grows. So the sums differ a
little, and are printed.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time

import duckdb

EDGES = [1, 2, 5, 10, 20, 30, 60, 120]
LIMIT, HISTORY_S, WARM_UP_S, PERCENTILE = 0.01, 14_400, 600, 0.98


def side(name):
    """SQL of the youngest age that would have done in each minute, by its place; the last means none."""
    allowed = f"{LIMIT} * {name}_used_bytes / 60.0 * interval_s"
    whens = " ".join(f"WHEN {name}_back_{edge}s_bytes <= {allowed} THEN {at}" for at, edge in enumerate(EDGES))
    return f"CASE {whens} ELSE {len(EDGES)} END AS {name}_best"


def at_age(name, what):
    """SQL of the column that belongs to the age in use."""
    whens = " ".join(f"WHEN {at} THEN {name}_{what}_{edge}s_bytes" for at, edge in enumerate(EDGES))
    return f"CASE {name}_age {whens} ELSE 0 END"


def query(folder):
    window = f"(PARTITION BY host, workload ORDER BY time_s RANGE BETWEEN {HISTORY_S} PRECEDING AND CURRENT ROW)"
    order = "(PARTITION BY host, workload ORDER BY time_s)"
    ages = ", ".join(f"greatest(quantile_disc({name}_best, {PERCENTILE}) OVER {window}, {name}_best) AS {name}_now" for name in ("anon", "file"))
    past = ", ".join(f"lag({name}_now) OVER {order} AS {name}_age" for name in ("anon", "file"))
    gone = " + ".join(at_age(name, "idle") for name in ("anon", "file"))
    back = " + ".join(at_age(name, "back") for name in ("anon", "file"))
    return f"""
        WITH best AS (
            SELECT *, {side("anon")}, {side("file")}, min(time_s) OVER (PARTITION BY host, workload) AS from_s
            FROM read_parquet('{folder}/*/*/*.parquet', hive_partitioning = true)
        ), ages AS (SELECT *, {ages} FROM best WHERE time_s - from_s > {WARM_UP_S} - 60),
        used AS (SELECT *, {past} FROM ages)
        SELECT count(*), sum(({gone})::DOUBLE * interval_s), sum(({back})::DOUBLE) FROM used
    """


def main():
    lowtide, folder = sys.argv[1:3]
    policy = f'[x.promotion]\nlimit = "{100 * LIMIT}%"\nwarm_up = "{WARM_UP_S}s"\nhistory = "{HISTORY_S}s"\n'
    file = tempfile.NamedTemporaryFile("w", suffix=".toml")
    file.write(policy)
    file.flush()
    for threads in (1, 2):
        begun = time.monotonic()
        arguments = ["fleet", "replay", folder, "--policy", file.name, "--threads", str(threads), "--json"]
        output = json.loads(subprocess.run([lowtide, *arguments], check=True, capture_output=True).stdout)
        own_s = time.monotonic() - begun
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        one = output["policies"][0]
        print(f"lowtide, {threads} threads: {output['rows']} rows in {own_s:.1f} s, {peak:.0f} MiB, gone {one['anon_gone_bytes'] + one['file_gone_bytes']:.4g}")
        base = duckdb.connect()
        base.execute(f"SET threads = {threads}")
        begun = time.monotonic()
        rows, gone, back = base.execute(query(folder)).fetchone()
        sql_s = time.monotonic() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        span_s = base.execute(f"SELECT max(time_s) - min(time_s - interval_s) FROM read_parquet('{folder}/*/*/*.parquet')").fetchone()[0]
        print(f"DuckDB, {threads} threads: {rows} rows in {sql_s:.1f} s, {peak:.0f} MiB, gone {gone / span_s:.4g}: {sql_s / own_s:.1f} times as long")


main()
