"""A replay on two Spark executors beside two threads of lowtide's own: `fleet_spark.py TELEMETRY`, with the package lowtide and pyspark."""

import os
import sys
import time

os.environ.update({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})

import lowtide
from lowtide import spark as on_spark
from pyspark.sql import SparkSession

POLICY = '[x.promotion]\nlimit = "1%"\nwarm_up = "10m"\n'


def timed(work):
    begun = time.monotonic()
    result = work()
    return time.monotonic() - begun, result


def two_executors():
    """A local Spark with two executors of one core each."""
    return (
        SparkSession.builder.master("local-cluster[2,1,2048]")
        .config("spark.executor.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "16")
        .getOrCreate()
    )


def main():
    folder = sys.argv[1]
    session = two_executors()
    table = session.read.parquet(folder)
    first = table.select("host").first()["host"]
    # Start-up apart: executors, their Pythons and what these import.
    on_spark.replay(table.where(table["host"] == first), POLICY)
    own_s, own = min((timed(lambda: lowtide.replay(folder, POLICY, threads=2)) for _ in range(3)), key=lambda one: one[0])
    print(f"{own['rows']} rows: two threads {own_s:.1f} s", flush=True)
    for name, telemetry in (("fetching files", folder), ("rows of a table", table)):
        for _ in range(2):
            spark_s, spark = timed(lambda: on_spark.replay(telemetry, POLICY))
            same = own["policies"] == spark["policies"]
            print(f"two executors, {name}: {spark_s:.1f} s ({spark_s / own_s:.2f} times), the same: {same}", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
