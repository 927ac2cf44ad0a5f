#!/usr/bin/python3
"""lowtide's figures of real programs against counted ones: `recount.py [--json] [PROGRAM...]`, of workloads/real/steady.py.

Each program runs twice: once under `lowtide run` with its defaults, and once under `lowtide-bench recount`, which pages all of
it out and counts what is touched again, independent of accessed bits. Counted is a pair: at least, and at most (pages that
cannot be evicted, neighbours that a fault on a file maps along, complete huge pages). `off` is the distance to the nearer of both,
0 between them; `within` says whether lowtide's interval, or its figure where it gives none, meets what all rounds span. Two runs
of a program are not the same run: what differs between them is in `off` too. `work` is the share of its usual work that a program
got done while it was counted: one that works as fast as it can and is held up by pages that come back touches less than usual.

Needs root and zram, the programs from Debian (redis-tools, memcached, zstd, python3-scipy), and two minutes for each. Swap is on
only while a program is counted. Environment: LOWTIDE, LOWTIDE_BENCH, SECONDS (60: of each run, 50 at least), ROUNDS (3).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
LOWTIDE = os.environ.get("LOWTIDE", str(TARGET / "lowtide"))
BENCH = os.environ.get("LOWTIDE_BENCH", str(TARGET / "lowtide-bench"))
SECONDS = int(os.environ.get("SECONDS", "60"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
# What each needs beside Python.
PROGRAMS = {"redis": "redis-server", "memcached": "memcached", "sqlite": None, "zstd": "zstd", "graph": "scipy"}
# Requests a second where what is used depends on them: a third of what is possible, so that being counted does not lower it.
RATES = {"redis": "40000"}
WINDOWS = (1.0, 5.0, 10.0)
# Filling is over by then.
AFTER = 12
# Beyond this a run hangs.
SPARE = 120
MIB = 1 << 20


def redis_server(folder):
    """Debian keeps the server in redis-tools under the name of another tool of it; it goes by the name it is called by."""
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if found:
        (folder / "redis-server").symlink_to(found)


def missing(name, environment):
    """What a program needs and the machine lacks."""
    need = PROGRAMS[name]
    if need == "scipy":
        found = subprocess.run(["/usr/bin/python3", "-c", "import scipy.sparse"], capture_output=True, check=False).returncode == 0
    else:
        found = need is None or shutil.which(need, path=environment["PATH"])
    return None if found else need


def run(command, environment):
    """Runs a command to its end and returns what it printed. Both commands end what they started on SIGTERM."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=SECONDS + SPARE)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else f"status {process.returncode}")
    return out


def estimated(summary):
    """lowtide's figures of the steady state as (window, what it is, bytes, lowest, highest): its answer, or medians of the run
    where a record has no answer. Means of the run would include the start-up."""
    steady = (summary.get("answer") or {}).get("steady")
    if steady and steady.get("used_bytes") is not None and steady.get("window_s"):
        used = steady["used_bytes"]
        low, high = (used if steady.get(key) is None else steady[key] for key in ("used_low_bytes", "used_high_bytes"))
        return [(float(steady["window_s"]), "answer", used, low, high)]
    rows = []
    for row in summary["working_set"]:
        if row["window_s"] in WINDOWS and row["p50_bytes"] is not None:
            used, share = row["p50_bytes"], (row["ci95_percent"] or 0) / 100
            rows.append((float(row["window_s"]), "median", used, used * (1 - share), used * (1 + share)))
    return rows


def mean(values):
    return sum(values) / len(values)


def counted(report):
    """Per window: at least and at most, means of the rounds; the least and the most of all rounds; and the work done."""
    windows = {}
    for at, window in enumerate(report["rounds"][0]["windows"]):
        rounds = [one["windows"][at]["used_bytes"] for one in report["rounds"]]
        lows, highs = zip(*rounds)
        works = [one["windows"][at]["work_share"] for one in report["rounds"]]
        work = None if None in works else mean(works)
        windows[window["window_s"]] = (mean(lows), mean(highs), min(lows), max(highs), work)
    return windows


def compare(name, folder, environment):
    """The rows of one program."""
    steady, rate = str(REPOSITORY / "workloads/real/steady.py"), [RATES[name]] if name in RATES else []
    record = folder / f"{name}-record"
    run([LOWTIDE, "run", "--out", str(record), "--", "/usr/bin/python3", steady, name, str(SECONDS), *rate], environment)
    summary = json.loads((record / "summary.json").read_text())
    figures = estimated(summary)
    if not figures:
        raise RuntimeError("lowtide has too few readings of it for a steady figure")
    windows = sorted({*WINDOWS, *(window for window, *_ in figures if window <= 15)})
    count = [BENCH, "recount", "--json", "--after", f"{AFTER}s", "--rounds", str(ROUNDS)]
    # Ended when it has been counted; the time is what it may take at most.
    program = ["/usr/bin/python3", steady, name, str(AFTER + int(2 * ROUNDS * windows[-1]) + SPARE), *rate]
    report = json.loads(run([*count, "--windows", ",".join(f"{window:g}s" for window in windows), "--", *program], environment))
    rows = []
    for window, kind, used, lowest, highest in figures:
        if window not in counted(report):
            continue
        low, high, *span, work = counted(report)[window]
        off = (used - low) / low if used < low else (used - high) / high if used > high else 0.0
        rows.append(
            {
                "program": name,
                "window_s": window,
                "figure": kind,
                "backend": summary["monitor"]["backend"],
                "counted_bytes": [low, high],
                "rounds_bytes": span,
                "work_share": work,
                "lowtide_bytes": [used, lowest, highest],
                "off_percent": 100 * off,
                "within": lowest <= span[1] and highest >= span[0],
            }
        )
    return rows


def table(rows):
    head = ["program", "window", "counted, MiB", "all rounds", "work", "lowtide, MiB", "interval", "off", "within", "monitor"]
    cells = [head]
    for row in rows:
        counts, span, (used, *interval) = ([value / MIB for value in row[key]] for key in ("counted_bytes", "rounds_bytes", "lowtide_bytes"))
        work = "-" if row["work_share"] is None else f"{100 * row['work_share']:.0f} %"
        between = lambda pair: f"{pair[0]:.1f}-{pair[1]:.1f}"
        window = f"{row['window_s']:g} s{', answer' if row['figure'] == 'answer' else ''}"
        off, within = f"{row['off_percent']:+.1f} %", "yes" if row["within"] else "no"
        cells.append([row["program"], window, between(counts), between(span), work, f"{used:.1f}", between(interval), off, within, row["backend"]])
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def main():
    words = [word for word in sys.argv[1:] if word != "--json"]
    unknown = [word for word in words if word not in PROGRAMS]
    if unknown or SECONDS < 50:
        sys.exit(f"recount.py [--json] [PROGRAM...]; there are {', '.join(PROGRAMS)}; SECONDS of 50 at least")
    # Ends what it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = []
    with tempfile.TemporaryDirectory(prefix="lowtide-recount-", dir="/var/tmp") as own:
        folder = pathlib.Path(own)
        redis_server(folder)
        # What a program leaves behind that is ended goes with the folder.
        environment = {**os.environ, "PATH": f"{own}:{os.environ['PATH']}", "TMPDIR": own, "LC_ALL": "C"}
        for name in words or PROGRAMS:
            lacks = missing(name, environment)
            if lacks:
                print(f"skip - {name}: needs {lacks}", file=sys.stderr)
                continue
            try:
                rows += compare(name, folder, environment)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"skip - {name}: {error}", file=sys.stderr)
    print(json.dumps(rows, indent=2) if "--json" in sys.argv[1:] else table(rows))


if __name__ == "__main__":
    main()
