"""Budgets on trial: `budgets.py FOLDER [PLOT.svg]` prints and plots the results of runs under each budget, by program and
mechanism, from the files FOLDER/PROGRAM.json that `lowtide budget --verify --least --json` wrote. If FOLDER also holds the
records PROGRAM and LOWTIDE names the command, it adds the cost of measuring and what Slurm's seff would have reported."""

import csv
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys

MIB = 1 << 20
NAMES = {"lowtide": "lowtide", "app-maxrss": "App-MaxRSS", "sys-maxrss": "Sys-MaxRSS", "vpa": "VPA", "unlimited": "Unlimited"}


def read(folder):
    """A row for each program and medium: its budgets and their results, by mechanism, and the least that holds."""
    rows = []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        try:
            output = json.loads(path.read_text())
        except ValueError:
            print(f"{path}: incomplete, skipped", file=sys.stderr)
            continue
        verify = output.get("verify") or {}
        price, seff = of_record(path.with_suffix(""), verify.get("runtime_s"))
        predicted = {budget["mechanism"]: budget["bytes"] for budget in output["budgets"]}
        for swap in sorted({tried["swap"] for tried in verify.get("tried", [])}):
            tried = {one["mechanism"]: one for one in verify["tried"] if one["swap"] == swap}
            least = [one["bytes"] for one in verify["verified"] if one["swap"] == swap]
            rows.append(
                {
                    "program": path.stem,
                    "swap": swap,
                    "allowed": output["slowdown_percent"] / 100,
                    "tried": tried,
                    "unlimited": predicted.get("unlimited"),
                    "perf": verify.get("perf_per_gb"),
                    "least": least[0] if least else None,
                    "price": price,
                    "seff": seff,
                }
            )
    return rows


def of_record(record, unlimited_s):
    """The monitor's share of a CPU and the relative slowdown of the measured run; and the peak of the summed RSS, which is what seff
    reports of a job if one of Slurm's samples, every 30 seconds, falls on the peak."""
    lowtide = os.environ.get("LOWTIDE")
    if not lowtide or not (record / "summary.json").exists():
        return None, None
    summary = json.loads((record / "summary.json").read_text())
    text = subprocess.run([lowtide, "report", record, "timeline", "--format", "csv"], check=True, capture_output=True, text=True).stdout
    seff = max(float(row["rss_bytes"] or 0) for row in csv.DictReader(io.StringIO(text)))
    longer = summary["runtime_s"] / unlimited_s - 1 if unlimited_s else None
    return (summary["monitor"]["cpu_percent"] / 100, longer), seff


def mib(value):
    return "-" if value is None else f"{value / MIB:.0f} MiB"


def outcome(tried):
    if tried is None:
        return "-"
    if tried["failed"]:
        return f"{tried['failed']} of {tried['runs']} failed"
    return f"{100 * tried['slowdown']['mean']:+.1f} %"


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("| " + " | ".join(["---"] + ["---:"] * (len(head) - 1)) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def by_program(rows):
    kinds = ["app-maxrss", "sys-maxrss", "vpa", "lowtide"]
    head = ["program", "swap", *(NAMES[kind] for kind in kinds), "Unlimited", "the least that holds", "lowtide off by"]
    lines = []
    for row in rows:
        tried = row["tried"]
        own, least = tried.get("lowtide"), row["least"]
        off = f"{100 * (own['bytes'] / least - 1):+.1f} %" if own and least else "-"
        cells = [f"{mib(tried[kind]['bytes'])}, {outcome(tried[kind])}" if kind in tried else "-" for kind in kinds]
        lines.append([row["program"], "yes" if row["swap"] else "no", *cells, mib(row["unlimited"]), mib(least), off])
    table(head, lines)


def by_mechanism(rows):
    """How often each fails or is too slow, and how much more than the least that holds it sets aside where it holds."""
    head = ["mechanism", "programs", "killed or failed", "slower than allowed", "holds", "more than the least, median", "performance per GB best"]
    lines = []
    for kind in ["app-maxrss", "sys-maxrss", "vpa", "lowtide"]:
        tried = [(row["tried"][kind], row) for row in rows if kind in row["tried"]]
        killed = sum(1 for one, _ in tried if one["failed"])
        slow = sum(1 for one, row in tried if not one["failed"] and one["slowdown"]["mean"] > row["allowed"])
        waste = sorted(one["bytes"] / row["least"] - 1 for one, row in tried if one["holds"] and row["least"])
        best = 0
        for one, row in tried:
            others = [other["perf_per_gb"] or 0 for name, other in row["tried"].items() if name != kind]
            best += (one["perf_per_gb"] or 0) >= max([*others, row["perf"] or 0])
        median = f"{100 * waste[len(waste) // 2]:+.0f} %" if waste else "-"
        holds = len(tried) - killed - slow
        lines.append([NAMES[kind], *map(str, (len(tried), killed, slow, holds)), median, str(best)])
    table(head, lines)
    known = [row for row in rows if row["seff"] and row["least"]]
    if known:
        # The search for the least stops at 5 %: runs within that may hold or not.
        little = [row["program"] for row in known if row["seff"] < 0.95 * row["least"]]
        print(f"seff at best: less than the least that holds for {len(little)} of {len(known)} ({', '.join(little)})")
    prices = [row["price"] for row in rows if row["price"]]
    if prices:
        cpu = [cpu for cpu, _ in prices]
        longer = [longer for _, longer in prices if longer is not None]
        print(f"measuring took {100 * statistics.median(cpu):.2f} % of a CPU (median of {len(cpu)}; {100 * max(cpu):.2f} % at most)", end="")
        print(f"; that run took {100 * statistics.median(longer):+.1f} % longer than those that nobody watched (median)" if longer else "")
    best = [max(row["perf"] or 0, *(one["perf_per_gb"] or 0 for one in row["tried"].values())) for row in rows]
    near = sum(1 for row, most in zip(rows, best) if (row["tried"].get("lowtide", {}).get("perf_per_gb") or 0) >= 0.97 * most)
    print(f"lowtide within 3 % of the best performance per GB: {near} of {len(rows)}")
    own = [row["tried"]["lowtide"]["bytes"] / row["least"] - 1 for row in rows if "lowtide" in row["tried"] and row["least"]]
    if own:
        close = sum(1 for off in own if abs(off) <= 0.1)
        print(f"lowtide within 10 % of the least that holds: {close} of {len(own)}; at most {-100 * min(own):.1f} % under it")


def plot(rows, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "lowtide"
    from matplotlib import pyplot

    rows = [row for row in rows if row["least"]]
    if not rows:
        return
    figure, (memory, perf) = pyplot.subplots(1, 2, figsize=(11, 1.4 + 0.38 * len(rows)), sharey=True)
    marks = {"app-maxrss": ("^", "#b35806"), "sys-maxrss": ("s", "#542788"), "vpa": ("D", "#4d9221"), "lowtide": ("o", "#2166ac")}
    for kind, (mark, colour) in marks.items():
        for at, row in enumerate(rows):
            one = row["tried"].get(kind)
            if one is None:
                continue
            memory.plot(one["bytes"] / row["least"], at, mark, color=colour, markerfacecolor=colour if one["holds"] else "white", markersize=7)
            perf.plot(one["perf_per_gb"] or 0, at, mark, color=colour, markerfacecolor=colour if one["holds"] else "white", markersize=7)
        memory.plot([], [], mark, color=colour, label=NAMES[kind])
    for at, row in enumerate(rows):
        memory.plot(row["unlimited"] / row["least"], at, "|", color="black", markersize=10)
        perf.plot(row["perf"] or 0, at, "|", color="black", markersize=10)
    memory.plot([], [], "|", color="black", label="Unlimited")
    memory.axvline(1, color="black", linewidth=0.8)
    memory.set_xscale("log", base=2)
    memory.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    memory.set_xlabel("budget over the least that holds")
    perf.set_xlabel("performance per GB (1: App-MaxRSS, as fast as without a limit)")
    memory.set_yticks(range(len(rows)), [row["program"] + (", swap" if row["swap"] else "") for row in rows])
    memory.invert_yaxis()
    for axes in (memory, perf):
        axes.grid(axis="x", color="#dddddd")
        axes.set_axisbelow(True)
    figure.legend(loc="upper center", ncols=5, frameon=False, title="hollow: killed, failed, or slower than allowed")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / (1.4 + 0.38 * len(rows))))
    figure.savefig(path, metadata={"Date": None})


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("budgets.py FOLDER [PLOT.svg]")
    rows = read(sys.argv[1])
    by_program(rows)
    by_mechanism(rows)
    if len(sys.argv) == 3:
        plot(rows, sys.argv[2])


main()
