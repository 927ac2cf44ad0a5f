"""A fleet of very many hosts, replayed from Parquet on disk: `fleet_hosts.py LOWTIDE FOLDER [HOSTS]` (10000), a day of each.

Eight hosts are simulated; the others are hard links to their files under other names, so that they take no room. Prints time and
memory of `lowtide fleet replay` on two threads and, where the Python package and pyspark are installed, of a local Spark with two
executors, and whether the results are equal."""

import json
import os
import subprocess
import sys
import time

POLICY = '[x.promotion]\nlimit = "1%"\nwarm_up = "10m"\n'
SIMULATED = 8


def make(lowtide, folder, hosts):
    subprocess.run([lowtide, "-q", "fleet", "generate", folder, "--hosts", str(SIMULATED)], check=True)
    for day in os.scandir(folder):
        for number, host in enumerate(sorted(os.scandir(day.path), key=lambda entry: entry.name)):
            files = [entry.name for entry in os.scandir(host.path)]
            for copy in range(1, (hosts - number + SIMULATED - 1) // SIMULATED):
                linked = f"{host.path}-{copy}"
                os.mkdir(linked)
                for name in files:
                    os.link(f"{host.path}/{name}", f"{linked}/{name}")


def on_spark(folder):
    """The replay by two executors with a core each, and its seconds; `None` where there is no Spark."""
    try:
        import fleet_spark
    except ImportError:
        return None
    session = fleet_spark.two_executors()
    seconds, result = fleet_spark.timed(lambda: fleet_spark.on_spark.replay(folder, POLICY))
    session.stop()
    return seconds, result


def main():
    lowtide, folder = sys.argv[1:3]
    hosts = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    if not os.path.isdir(folder):
        make(lowtide, folder, hosts)
    policy = f"{folder}.toml"
    with open(policy, "w", encoding="utf-8") as file:
        file.write(POLICY)
    replay = [lowtide, "-q", "fleet", "replay", folder, "--policy", policy, "--threads", "2", "--json"]
    begun = time.monotonic()
    with subprocess.Popen(replay, stdout=subprocess.PIPE) as running:
        own = json.load(running.stdout)
        seconds = time.monotonic() - begun
        most = os.wait4(running.pid, 0)[2].ru_maxrss / 1024
        running.returncode = 0
    rows = own["rows"]
    each = rows * 60e-6 / seconds / 2
    print(
        f"{own['hosts']} hosts, {rows} rows: two threads {seconds:.0f} s, {each:.1f} M rows a minute and thread, {most:.0f} MiB at most",
        flush=True,
    )
    other = on_spark(folder)
    if other is None:
        print("skip - the same on Spark: needs the Python package and pyspark (--pypi)")
    else:
        seconds, result = other
        print(f"Spark, two executors: {seconds:.0f} s, the same: {own['policies'] == result['policies']}")


main()
