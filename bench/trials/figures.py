"""Figures of the trials: `figures.py watch FILE OUT` sums what a cgroup and zram hold until it gets a signal, and
`figures.py table RESULTS [FIGURE,...]` prints the results of configurations beside each other."""

import collections
import signal
import sys
import time

MIB = 1 << 20


def zram_bytes():
    """What all zram swaps take in memory."""
    taken = 0
    with open("/proc/swaps") as swaps:
        names = [line.split()[0].rsplit("/", 1)[-1] for line in swaps.readlines()[1:]]
    for name in names:
        if name.startswith("zram"):
            with open(f"/sys/block/{name}/mm_stat") as stat:
                taken += int(stat.read().split()[2])
    return taken


def watch(path, out, every_s=0.25):
    """Peaks and means over time, from when the cgroup holds something on."""
    ended = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(1))
    before = zram_bytes()
    peaks, sums, count = [0, 0, 0], [0, 0, 0], 0
    while not ended:
        try:
            with open(path) as file:
                resident = int(file.read())
        except OSError:
            resident = 0
        stored = max(0, zram_bytes() - before)
        if resident or count:
            values = [resident, resident + stored, stored]
            peaks = [max(pair) for pair in zip(peaks, values)]
            sums = [sum(pair) for pair in zip(sums, values)]
            count += 1
        time.sleep(every_s)
    names = ["resident", "net", "stored"]
    with open(out, "w") as file:
        for name, peak, total in zip(names, peaks, sums):
            print(f"{name}_peak={peak / MIB:.1f} {name}_avg={total / max(count, 1) / MIB:.1f}", end=" ", file=file)


# Of each figure: its title, and whether a change in percent is shown beside it.
COLUMNS = {
    "resident_peak": ("peak, MiB", True),
    "net_peak": ("peak net of zram", True),
    "resident_avg": ("mean, MiB", True),
    "net_avg": ("mean net", True),
    "runtime": ("runtime, s", True),
    "reads": ("reads/s", True),
    "p50": ("p50, ms", False),
    "p99": ("p99, ms", False),
    "cold_p99": ("p99 of cold keys, ms", False),
    "agent_cpu": ("agent's CPU, s", False),
}


def row_of(cells, widths):
    return "| " + " | ".join(f"{cell:<{width}}" if at == 0 else f"{cell:>{width}}" for at, (cell, width) in enumerate(zip(cells, widths))) + " |"


def table(path, wanted=""):
    """One row a configuration: means over the rounds, changes against the control of the same round."""
    rounds = collections.defaultdict(dict)
    for line in open(path):
        number, name, *pairs = line.split()
        rounds[name][number] = {key: float(value) for key, value in (pair.split("=") for pair in pairs)}
    control = rounds.get("none", {})
    keys = [key for key in COLUMNS if any(key in run for runs in rounds.values() for run in runs.values())]
    keys = [key for key in keys if not wanted or key in wanted.split(",")]
    head, ruler, rows = ["configuration"], ["---"], []
    for key in keys:
        head += [COLUMNS[key][0], "%"] if COLUMNS[key][1] else [COLUMNS[key][0]]
        ruler += ["---:", "---:"] if COLUMNS[key][1] else ["---:"]
    for name, runs in rounds.items():
        cells = [name]
        for key in keys:
            values = [run[key] for run in runs.values() if key in run]
            digits = 2 if key in ("p50", "p99", "cold_p99", "agent_cpu") else 1
            cells.append(f"{sum(values) / len(values):.{digits}f}" if values else "-")
            if COLUMNS[key][1]:
                changes = [
                    100 * (run[key] / control[number][key] - 1)
                    for number, run in runs.items()
                    if key in run and control.get(number, {}).get(key)
                ]
                cells.append(f"{sum(changes) / len(changes):+.1f}" if changes and name != "none" else "")
        rows.append(cells)
    widths = [max(len(row[at]) for row in [head, ruler, *rows]) for at in range(len(head))]
    for row in [head, ruler, *rows]:
        print(row_of(row, widths))


if __name__ == "__main__":
    {"watch": watch, "table": table}[sys.argv[1]](*sys.argv[2:])
