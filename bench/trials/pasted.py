"""Limits as they are pasted, on trial: `pasted.py FOLDER [NAME...]` records each program once with lowtide's defaults, takes the
limit that `lowtide budget --emit systemd` gives, and starts the program afresh under it, by turns with runs without a limit.

Then the least that holds is found by bisection, to 5 %, at most 15 % more than which is wanted; and what less than half of the limit
does is not asked. A limit holds where no run under it is killed or fails, and where the mean slowdown of its runs is not above
what lowtide promised by more than the standard error of these runs and the free ones. Programs of three minutes run once each
way, and are stepped through only until it is known whether the limit is within 15 %.

What is in FOLDER already is not measured again. Programs and their lengths: PAIRS. With swap there must be some. Root, cgroups.
Environment: LOWTIDE, LOWTIDE_WORKLOADS.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
LOWTIDE = os.environ.get("LOWTIDE", str(TARGET / "lowtide"))
MIB = 1 << 20
# A program, how much work it is given (seconds of a pattern), about how long that takes, and whether it may swap.
PAIRS = [
    ("redis", 0.1, "3s", False),
    ("memcached", 0.4, "3s", True),
    ("pgbench", 0.5, "3s", False),
    ("sqlite", 0.2, "3s", False),
    ("sort", 0.5, "3s", False),
    ("build", 0.09, "3s", False),
    ("python", 0.8, "3s", True),
    ("java", 1.6, "3s", False),
    ("node", 1.4, "3s", True),
    ("fixed", 3, "3s", True),
    ("redis", 1.75, "30s", True),
    ("memcached", 8.5, "30s", False),
    ("memcached", 8.5, "30s", True),
    ("pgbench", 7.6, "30s", False),
    ("sqlite", 2.4, "30s", True),
    ("sort", 5, "30s", False),
    ("sort", 5, "30s", True),
    ("build", 0.75, "30s", False),
    ("build", 0.75, "30s", True),
    ("python", 10.5, "30s", False),
    ("java", 20, "30s", False),
    ("java", 20, "30s", True),
    ("node", 30, "30s", False),
    ("node", 30, "30s", True),
    ("fixed", 30, "30s", False),
    ("redis", 11, "3min", True),
    ("pgbench", 47, "3min", False),
    ("sqlite", 14.5, "3min", True),
    ("python", 64, "3min", True),
    ("fixed", 180, "3min", False),
]
# Runs each way, and in each step of the bisection.
RUNS = {"3s": (5, 2), "30s": (2, 1), "3min": (1, 1)}
PATTERNS = {"fixed"}
WANTED, NEAR, FAR = 1.15, 1.05, 0.5
# A run is ended after so many times the recorded one's time, and so many seconds.
PATIENCE = (4, 30)


class Pair:
    """One program in one configuration, and what is known of it."""

    def __init__(self, folder, program, work, length, swap):
        self.name = f"{program}-{length}-{'swap' if swap else 'no-swap'}"
        self.program, self.work, self.length, self.swap = program, work, length, swap
        self.folder = folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "known.json"
        self.known = json.loads(path.read_text()) if path.exists() else {"runs": [], "limit": None}

    def keep(self):
        (self.folder / "known.json").write_text(json.dumps(self.known, indent=1))

    def command(self):
        if self.program in PATTERNS:
            return [str(TARGET / "pattern"), str(REPOSITORY / f"workloads/patterns/{self.program}.toml"), "--seconds", str(self.work)]
        return [str(REPOSITORY / "workloads/real/program.sh"), "run", self.program]

    def run(self, name, *options):
        """Runs it under `lowtide run`; its summary, and why it failed."""
        record = self.folder / name
        shutil.rmtree(record, ignore_errors=True)
        environment = {**os.environ, "WORK": str(self.work)}
        command = [LOWTIDE, "run", "--out", str(record), *options, "--", *self.command()]
        seconds = self.known.get("recorded_s")
        limit = ["timeout", str(PATIENCE[0] * seconds + PATIENCE[1])] if seconds else []
        done = subprocess.run([*limit, *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        path = record / "summary.json"
        if not path.exists():
            sys.exit(f"{self.name}: {done.stderr.strip()}")
        summary = json.loads(path.read_text())
        failure = None if done.returncode == 0 else f"status {done.returncode}"
        return summary, failure

    def record(self):
        """The limit as it is pasted, and what is promised."""
        if self.known["limit"]:
            return
        summary, failure = self.run("record")
        if failure:
            sys.exit(f"{self.name}: without a limit: {failure}")
        swap = [] if self.swap else ["--no-swap"]
        emitted = subprocess.run([LOWTIDE, "budget", str(self.folder / "record"), *swap, "--emit", "systemd"], capture_output=True, text=True, check=True).stdout
        limit = next(line for line in emitted.splitlines() if line.startswith("MemoryMax="))
        asked = json.loads(subprocess.run([LOWTIDE, "budget", str(self.folder / "record"), *swap, "--json"], capture_output=True, text=True, check=True).stdout)
        self.known["limit"] = int(limit.removeprefix("MemoryMax=").removesuffix("M")) * MIB
        self.known["emitted"] = emitted
        self.known["promised"] = asked["slowdown_percent"] / 100
        self.known["recorded_s"] = summary["runtime_s"]
        self.known["backend"] = summary["monitor"]["backend"]
        self.keep()

    def once(self, limit):
        """One run with so much, or with all there is, however often it was run before."""
        options = ["--monitor", "none", *([] if self.swap else ["--no-swap"]), *([] if limit is None else ["--limit", f"{limit}B"])]
        summary, failure = self.run("run", *options)
        self.known["runs"].append({"limit": limit, "s": summary["runtime_s"], "failure": failure})
        self.keep()

    def of(self, limit):
        return [run for run in self.known["runs"] if run["limit"] == limit]

    def slowdown(self, limit):
        """Mean, and its standard error."""
        free, under = ([run["s"] for run in self.of(which)] for which in (None, limit))
        error = sum(statistics.variance(times) / len(times) / statistics.mean(times) ** 2 for times in (free, under) if len(times) > 1)
        return statistics.mean(under) / statistics.mean(free) - 1, error**0.5

    def holds(self, limit, runs):
        """Whether so much is enough, from so many runs; fewer where they fail."""
        while len(self.of(limit)) < runs and not any(run["failure"] for run in self.of(limit)):
            self.once(limit)
        if any(run["failure"] for run in self.of(limit)):
            return False
        mean, error = self.slowdown(limit)
        return mean - error <= self.known["promised"]

    def trial(self):
        self.record()
        limit, (runs, steps) = self.known["limit"], RUNS[self.length]
        while len(self.of(None)) < runs:
            self.once(None)
            if not any(run["failure"] for run in self.of(limit)):
                self.once(limit)
        self.known["holds"] = self.holds(limit, runs)
        if "least" not in self.known:
            self.known["least"] = self.least(limit, steps)
        self.keep()

    def least(self, limit, steps):
        """The least that holds, to 5 %: [too little, enough]. Where the limit does not hold, what does above it."""
        low, high = limit * FAR, limit
        if not self.known["holds"]:
            low, high = limit, limit * 2
            if not self.holds(high, steps):
                return [high, None]
        elif not self.holds(near := whole_mib(limit / WANTED), steps):
            low = near
        elif self.length == "3min":
            return [None, near]
        else:
            high = near
            if self.holds(whole_mib(low), steps):
                return [None, whole_mib(low)]
        while high / low > NEAR:
            middle = whole_mib((low * high) ** 0.5)
            if self.holds(middle, steps):
                high = middle
            else:
                low = middle
        return [whole_mib(low), whole_mib(high)]


def whole_mib(size):
    return int(size) // MIB * MIB


def mib(size):
    return "-" if size is None else f"{size / MIB:.0f}"


def table(pairs):
    head = ["program", "pasted, MiB", "runs", "failed", "slowdown", "promised", "least that holds, MiB", "over it"]
    cells = [head]
    killed = slow = near = 0
    for pair in pairs:
        known = pair.known
        limit, runs = known["limit"], pair.of(known["limit"])
        failed = sum(run["failure"] is not None for run in runs)
        too_little, least = known["least"]
        slowdown = "-"
        if not failed:
            mean, error = pair.slowdown(limit)
            slowdown = f"{100 * mean:+.1f} %" + (f" ± {100 * error:.1f}" if error else "")
        # Between what is too little and what was enough.
        within = known["holds"] and too_little is not None and limit <= WANTED * least + MIB
        killed += failed > 0
        slow += not failed and not known["holds"]
        near += within or (too_little is not None and limit <= WANTED * too_little + MIB)
        span = f"{mib(too_little)}-{mib(least)}" if too_little else f"< {mib(least)}"
        over = "-" if least is None else f"{100 * (limit / least - 1):+.0f} %"
        cells.append([pair.name, mib(limit), str(len(runs)), str(failed), slowdown, f"+{100 * known['promised']:.0f} %", span, over])
    widths = [max(map(len, column)) for column in zip(*cells)]
    print("\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells))
    print(f"\n{len(pairs)} pairs: {killed} with a run that failed under the limit, {slow} slower than promised, {near} at most 15 % above the least that holds")


def main():
    if len(sys.argv) < 2:
        sys.exit("pasted.py FOLDER [NAME...]")
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    pairs = [pair for pair in (Pair(folder, *row) for row in PAIRS) if not names or any(pair.name.startswith(name) for name in names)]
    for pair in pairs:
        pair.trial()
        print(f"{pair.name}: {mib(pair.known['limit'])} MiB, {'holds' if pair.known['holds'] else 'DOES NOT HOLD'}", file=sys.stderr)
    table(pairs)


main()
