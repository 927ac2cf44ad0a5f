"""The evaluation of scripts/evaluation.sh: what runs, and what the runs say.

    evaluation.py plan DIR SUITE [--quick]       writes DIR/evaluation.json, and prints a line for each unit that is wanted
    evaluation.py suite DIR PLACE PROGRAM GROUP  prints the suite of a unit
    evaluation.py budgets RECORD                 prints the budgets of a record in bytes, from which limits are taken
    evaluation.py DIR [FOLDER [PLACE...]]        writes FOLDER/programs.md and FOLDER/index.html (DIR) from the runs in DIR, of these
                                                 places alone if there are some

A unit is a program at a place in a group of configurations (GROUPS); its runs are in DIR/PLACE/PROGRAM/GROUP, one round of
`lowtide compare`. A place ends with its seed (guest-6.12-1), which natively is the round (native-3). Places that differ only in
it are one column.

Environment: LOWTIDE; of `plan`: ONLY (programs), PLACES, CONFIGS (groups), and for the head of the tables COMMIT and COMMAND.
"""

import base64
import collections
import csv
import datetime
import functools
import hashlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tomllib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
KERNELS, SEEDS, ROUNDS = ("6.12", "newest"), 2, 5
SCHEMES = ["orig", "rec", "thp", "ethp-tuned", "ethp", "prcl", "prcl-tuned", "auto", "age", "pressure"]
# Where the program does not hold under lowtide's limit divided by this, that was within 15 % of the least that it needs.
TIGHT = 1.15
LIMITS = {"sys-maxrss": "Sys-MaxRSS", "vpa": "VPA", "lowtide": "lowtide", "tight": f"lowtide's / {TIGHT}"}
# What runs together, in rounds, each group with an orig of its own: so that one can be repeated without the others.
GROUPS = {
    "record": ["orig", "rec"],
    "schemes": ["orig", "thp", "ethp-tuned", "ethp", "prcl", "prcl-tuned"],
    "agents": ["orig", "auto", "age", "pressure"],
    "limits": ["orig", *LIMITS],
}
QUICK = {"schemes": ["orig", "prcl", "auto"]}
# Natively other tools may use DAMON: these are always measured by smaps there. Only DAMON has the actions of ethp.
MONITORED = {"rec": [], **{name: [name] for name in ("ethp-tuned", "prcl", "prcl-tuned")}}
# One percent of a real core: a guest's executes a billion instructions a second, a fifth of what a real one does.
GUEST_PRICE = "5%"
# WORK of programs that do a fixed amount of it: in guests, so that they run for half a minute, which takes one to three of the host,
# and natively, so that they run for one. A budget of what is used takes 20 s.
WORK = {
    "gcc": (0.07, 1.7),
    "gobuild": (0.16, 4),
    "encode": (0.3, 8),
    "picture": (0.07, 1.2),
    "gromacs": (0.25, 13),
    "hmmer": (0.15, 4.5),
    "octave": (0.15, 1.5),
    "graph": (0.25, 4),
    "blocks": (0.15, 2.2),
    "sort": (0.3, 2.5),
    "breadth-first": (0.25, 1.4),
    "pattern-tight": (0.12, 2.3),
}
# What a program under a limit may lose, and when a run is given up: so many times the recorded time, and so many seconds.
SLOWDOWN, PATIENCE = 0.05, (2, 30)
METRICS = {
    "runtime": "runtime",
    "scaled": "runtime on a real core",
    "call": "time of a call",
    "rss": "resident memory",
    "net": "memory net of zram",
    "memused": "memory in use on the system",
}
# Those on the page and with a table by program, of which guests have one more.
BY_PROGRAM = ("runtime", "call", "rss", "net")
PUBLISHED = {"runtime": "runtime", "memused.avg": "memused", "rss.avg": "rss"}
# Percent of runtime that saving memory may cost to be called cheap.
CHEAP = 1
# Instructions a second of the core that docs/evaluation/instructions.md states, and of a guest's (vm/README.md).
CORE, GUEST_CORE = 6.4e9, 1e9
# The configurations that page out, from how many seconds on memory is called idle in their table, and how many bytes saved say how
# far memory compresses.
SAVING, IDLE_S, TELLING = ("prcl", "prcl-tuned", "auto", "age"), 10, 4 * MIB
# Fewer values have no interval.
FEWEST = 3


def t95(degrees):
    """What Student's t with so many degrees of freedom exceeds on either side with a probability of 5 %; by the distribution in
    closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    >>> [round(t95(degrees), 3) for degrees in (1, 2, 3, 4, 24)]
    [12.706, 4.303, 3.182, 2.776, 2.064]
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, degrees) < 0.95 else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def within(angle, degrees):
    """The probability that t is within plus or minus tan(angle) * sqrt(degrees)."""
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 if odd else 1, degrees - 1, 2):
        term *= k / (k + 1) * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def change(logs):
    """Logarithms of ratios as (percent, lowest, highest): their geometric mean and its 95 % interval, None of less than three.

    >>> [round(value, 2) for value in change([math.log(ratio) for ratio in (1.0, 1.1, 1.21, 1.1)])]
    [10.0, -2.81, 24.5]
    >>> change([0.0, 0.0]), change([])
    ((0.0, None, None), None)
    """
    if not logs:
        return None
    mean = statistics.mean(logs)
    if len(logs) < FEWEST:
        return percent(mean), None, None
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return percent(mean), percent(mean - half), percent(mean + half)


def percent(log):
    return 100 * math.expm1(log)


# --- what runs


def read_suite(path):
    return tomllib.loads(pathlib.Path(path).read_text())


def family(program):
    return program.get("family", "other")


def one_each(programs):
    """The first program of each family.

    >>> [program["name"] for program in one_each([{"name": "a"}, {"name": "b", "family": "x"}, {"name": "c"}])]
    ['a', 'b']
    """
    first = {}
    for program in programs:
        first.setdefault(family(program), program)
    return list(first.values())


def places(quick):
    """Kernels in turn, so that each has results early.

    >>> places(True)
    ['guest-6.12-1', 'native-1']
    >>> len(places(False))
    9
    """
    if quick:
        return [f"guest-{KERNELS[0]}-1", "native-1"]
    guests = [f"guest-{kernel}-{seed}" for seed in range(1, SEEDS + 1) for kernel in KERNELS]
    return guests + [f"native-{number}" for number in range(1, ROUNDS + 1)]


def units(programs, quick):
    """What is to run, in order, of programs with names. A program's limits come from the record of its first group."""
    groups = QUICK if quick else GROUPS
    for place in places(quick):
        for program in programs[:2] if quick and place.startswith("native") else programs:
            for group, configs in groups.items():
                if place.startswith("native"):
                    configs = [config for config in configs if config != "ethp"]
                yield {"place": place, "program": program["name"], "group": group, "configs": configs}


def wanted(name, known):
    """Those of an environment variable, separated by commas; all of them where it is empty."""
    return among(name, [word for word in os.environ.get(name, "").split(",") if word], known)


def among(name, words, known):
    """These; all that are known where there are none.

    >>> among("PLACE", [], ["a", "b"]), among("PLACE", ["b"], ["a", "b"])
    (['a', 'b'], ['b'])
    """
    if unknown := [word for word in words if word not in known]:
        sys.exit(f"{name}: {', '.join(unknown)} is none of {', '.join(known)}")
    return words or known


def data_of(program):
    """Under which name workloads/real installs and prepares it.

    >>> data_of({"command": "WORK=2 workloads/real/program.sh run redis"}), data_of({"command": ["sleep", "1"]})
    ('redis', '-')
    """
    command = program["command"] if isinstance(program["command"], str) else " ".join(program["command"])
    found = re.search(r"program\.sh run (\S+)", command)
    return found[1] if found else "-"


def plan(folder, suite, quick):
    programs = read_suite(suite)["program"]
    if quick:
        programs = one_each(programs)
    by_name = {program["name"]: program for program in programs}
    planned = list(units(programs, quick))
    named = {"ONLY": "program", "PLACES": "place", "CONFIGS": "group"}
    chosen = {key: wanted(name, list(dict.fromkeys(unit[key] for unit in planned))) for name, key in named.items()}
    head = {
        "suite": str(suite),
        "quick": quick,
        "commit": os.environ.get("COMMIT", "unknown"),
        "command": os.environ.get("COMMAND", "make evaluation"),
        "programs": [
            {"name": name, "family": family(program), "timed": program.get("figure_name", "").startswith("ms ")}
            for name, program in by_name.items()
        ],
    }
    (folder / "evaluation.json").write_text(json.dumps(head, indent=1))
    for unit in planned:
        if all(unit[key] in of for key, of in chosen.items()):
            print(unit["place"], unit["program"], unit["group"], ",".join(unit["configs"]), data_of(by_name[unit["program"]]))


def toml(kind, table):
    """A table of an array. Strings, numbers, and lists of them are written as in JSON.

    >>> toml("config", {"name": "a", "schemes": ["b"], "no_swap": True})
    '[[config]]\\nname = "a"\\nschemes = ["b"]\\nno_swap = true\\n'
    """
    return f"[[{kind}]]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items())


def unit_suite(folder, place, name, group):
    head = json.loads((folder / "evaluation.json").read_text())
    suite, quick = read_suite(head["suite"]), head["quick"]
    program = next(program for program in suite["program"] if program["name"] == name)
    configs = suite.get("config", [])
    if group == "limits":
        program, configs = limits(folder, place, program)
    elif place.startswith("native"):
        configs = [config for config in configs if config["name"] not in MONITORED]
        configs = [{**config, **({"monitor": "smaps"} if config.get("schemes") else {})} for config in configs]
        configs += [{"name": name, "schemes": schemes, "monitor": "smaps"} for name, schemes in MONITORED.items()]
    else:
        schemes = {**MONITORED, "ethp": ["ethp"]}
        own = {"monitor": "auto", "max_overhead": GUEST_PRICE}
        configs = configs + [{"name": name, "schemes": of, **own} for name, of in schemes.items()]
    if name in WORK and not quick:
        in_guest, natively = WORK[name]
        program["command"] = f"WORK={in_guest if place.startswith('guest') else natively} {program['command']}"
    return toml("program", program) + "".join(toml("config", config) for config in configs)


def limits(folder, place, program):
    """The program with a time limit, and a configuration for each memory limit: of one record for all seeds of a place."""
    name = program["name"]
    records = sorted(folder.glob(f"{kind_of(place)}-*/{name}/record/budgets.json"))
    if not records:
        sys.exit(f"no record of {name} at {place}, from which to take limits")
    of = json.loads(records[0].read_text())
    if "lowtide" in of:
        of["tight"] = round(of["lowtide"] / TIGHT)
    configs = [{"name": kind, "limit": f"{of[kind]}B", "no_swap": True} for kind in LIMITS if kind in of]
    took_s = max(run["runtime_s"] for run in lines_of(records[0].parent / "runs.jsonl") if not run["failure"])
    return {**program, "timeout": f"{PATIENCE[0] * took_s + PATIENCE[1]:.0f}s"}, configs


def budgets(record):
    command = [lowtide(), "budget", record, "--no-swap", "--slowdown", f"{SLOWDOWN:.0%}", "--json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {budget["mechanism"]: budget["bytes"] for budget in answer["budgets"]}


def lowtide():
    return os.environ.get("LOWTIDE", str(REPOSITORY / "target/release/lowtide"))


# --- what the runs say


def kind_of(place):
    """A place without its seed.

    >>> kind_of("guest-6.12-2")
    'guest-6.12'
    """
    return place.rpartition("-")[0]


def lines_of(path):
    """The runs of a comparison; the last line of one that was interrupted may be incomplete."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            pass


def is_monitored(config):
    """Whether lowtide's CPU time in a run of it is counted, or none of it runs: that of agents is not."""
    return config in {"orig", "ethp", *MONITORED}


def scaled(run):
    """The runtime in a guest, with lowtide's CPU time as a real core would need it: what is done for the time that passes, not for
    the work, takes a larger share of a slower core. What works at a fixed rate does not wait for it.

    >>> [scaled({"program": name, "runtime_s": 20.0, "monitor_cpu_s": 0.64}) for name in ("sort", "texts")]
    [19.46, 20.0]
    """
    waits = run["program"] in WORK
    return run["runtime_s"] - waits * (1 - GUEST_CORE / CORE) * (run["monitor_cpu_s"] or 0)


def values_of(run, timed, in_guest):
    """The metrics of a run. What works at a fixed rate loses no runtime, so that its calls are timed."""
    rss, kept = run["rss_bytes"], run.get("kept_bytes")
    net = None if rss is None or kept is None else rss + kept
    call = run["figure"] if timed else None
    return {
        "runtime": run["runtime_s"],
        "scaled": scaled(run) if in_guest and is_monitored(run["config"]) else None,
        "call": call,
        "rss": rss,
        "net": net,
        "memused": run["system_used_bytes"],
        "faults": run["major_faults"],
        "cpu": run["monitor_cpu_s"],
    }


class Runs:
    """All runs of an evaluation."""

    def __init__(self, folder, only=()):
        self.folder = folder
        self.head = json.loads((folder / "evaluation.json").read_text())
        self.families = {program["name"]: program["family"] for program in self.head["programs"]}
        self.timed = {program["name"] for program in self.head["programs"] if program["timed"]}
        only = among("PLACE", only, places(self.head["quick"]))
        planned = [unit for unit in units(self.head["programs"], self.head["quick"]) if unit["place"] in only]
        self.kinds = list(dict.fromkeys(kind_of(unit["place"]) for unit in planned))
        self.values = collections.defaultdict(dict)  # (kind, program, config): {(seed, round): values}
        self.originals = {}  # (kind, program, config): what orig is called in its group
        self.bytes = {}  # (kind, program, mechanism): the limit
        self.failed, self.made, self.missing = [], [], []
        for unit in planned:
            self.take(unit)
        self.configs = [name for name in [*SCHEMES, *map(limit_name, LIMITS)] if any(key[2] == name for key in self.values)]
        self.kinds = [kind for kind in self.kinds if any(key[0] == kind for key in self.values)]

    def take(self, unit):
        place, program, group = unit["place"], unit["program"], unit["group"]
        folder = self.folder / place / program / group
        done = folder / "done.json"
        if not done.exists():
            self.missing.append(unit)
            failed = [run["failure"] for run in lines_of(folder.with_suffix(".failed") / "runs.jsonl") if run["failure"]]
            self.failed += [(place, program, group, why) for why in failed]
            return
        self.made.append({**unit, **json.loads(done.read_text())})
        limited = group == "limits"
        if limited:
            for config in json.loads((folder / "plan.json").read_text())["configs"]:
                if "limit" in config:
                    self.bytes[kind_of(place), program, config["name"]] = size(config["limit"])
        for run in lines_of(folder / "runs.jsonl"):
            if run["config"] not in unit["configs"]:
                continue
            name = limit_name(run["config"]) if limited else run["config"]
            name = original_in(group) if run["config"] == "orig" else name
            self.originals[kind_of(place), program, name] = original_in(group)
            if run["failure"]:
                self.failed.append((place, program, name, run["failure"]))
            if run["round"]:
                key = (place.rpartition("-")[2], run["round"])
                in_guest = place.startswith("guest-")
                values = None if run["failure"] else values_of(run, program in self.timed, in_guest)
                self.values[kind_of(place), program, name][key] = values

    def programs(self, kind):
        return [name for name in self.families if any(key[:2] == (kind, name) for key in self.values)]

    def family_names(self, kind):
        return list(dict.fromkeys(self.families[name] for name in self.programs(kind)))

    def samples(self, kind):
        return len({unit["place"] for unit in self.made if kind_of(unit["place"]) == kind})

    def of(self, kind, key):
        return sorted({unit[key] for unit in self.made if kind_of(unit["place"]) == kind})

    def original(self, kind, program, config):
        """What a configuration is compared with: orig of its own group."""
        return self.originals.get((kind, program, config), "orig")

    @functools.cache
    def logs(self, kind, program, config, metric):
        """Logarithms of the ratios to orig of the same seed or round."""
        own = self.values.get((kind, program, config), {})
        original = self.values.get((kind, program, self.original(kind, program, config)), {})
        pairs = [(values[metric], original[key][metric]) for key, values in own.items() if values and original.get(key)]
        return [math.log(this / other) for this, other in pairs if this and other]

    def over_programs(self, kind, programs, config, metric):
        """The change over programs, each of which counts once."""
        each = [self.logs(kind, program, config, metric) for program in programs]
        return change([statistics.mean(logs) for logs in each if logs])

    def summed(self, kind, config, metric):
        """The change in percent of the sums over all programs, as in the published tables."""
        sums = [0.0, 0.0]
        for program in self.programs(kind):
            pair = [self.mean(kind, program, name, metric) for name in (self.original(kind, program, config), config)]
            if None not in pair:
                sums = [total + value for total, value in zip(sums, pair)]
        return 100 * (sums[1] / sums[0] - 1) if sums[0] else None

    def mean(self, kind, program, config, metric):
        values = [one[metric] for one in self.values.get((kind, program, config), {}).values() if one and one[metric] is not None]
        return statistics.mean(values) if values else None

    def schemes(self, kind):
        return [name for name in SCHEMES[1:] if any((kind, program, name) in self.values for program in self.programs(kind))]

    def noise(self, kind, program, metric):
        """By how much the runs of orig in all groups differ: the standard deviation of their logarithms, of three or more."""
        runs = [one for name in ORIGINALS for one in self.values.get((kind, program, name), {}).values() if one and one[metric]]
        return statistics.stdev(math.log(one[metric]) for one in runs) if len(runs) >= FEWEST else 0.0

    def verdict(self, kind, program, mechanism):
        """How a program did under a limit: killed, slower (by its calls, where it works at a fixed rate) beyond doubt, or holds; its
        slowdown."""
        runs = self.values.get((kind, program, limit_name(mechanism)))
        if not runs:
            return None, None
        if None in runs.values():
            return "killed", None
        metric = "call" if program in self.timed else "runtime"
        ratios = [math.exp(log) - 1 for log in self.logs(kind, program, limit_name(mechanism), metric)]
        if not ratios:
            return None, None
        # A single ratio is of two runs.
        noise = math.sqrt(2) * self.noise(kind, program, metric)
        error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else noise
        slowdown = statistics.mean(ratios)
        return "slower" if slowdown - error > SLOWDOWN else "holds", 100 * slowdown


def original_in(group):
    """What orig is called in a group; in that of schemes, orig."""
    return "orig" if group == "schemes" else f"{group}-orig"


ORIGINALS = {original_in(group) for group in GROUPS}


def limit_name(config):
    return f"limit-{config}"


def size(limit):
    """Bytes of a limit in a plan: a number, or a number with a unit.

    >>> size(1024), size("12B"), size("2MiB"), size("1.5G")
    (1024, 12, 2097152, 1610612736)
    """
    if isinstance(limit, (int, float)):
        return int(limit)
    number, unit = re.fullmatch(r"([0-9.]+) *([KMGT]?)i?B?", limit, re.IGNORECASE).groups()
    return int(float(number) * 1024 ** " KMGT".index(unit.upper() or " "))


# --- in Markdown


def shown(value):
    """A change with its interval.

    >>> shown((1.234, -0.5, 3)), shown((-2.0, None, None)), shown((-0.01, None, None)), shown(None)
    ('+1.2 (-0.5 to +3.0)', '-2.0', '+0.0', '-')
    """
    if value is None:
        return "-"
    mean, low, high = (None if part is None else f"{round(part, 1) + 0.0:+.1f}" for part in value)
    return mean if low is None else f"{mean} ({low} to {high})"


def table(head, rows, ruler="---:"):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] + [ruler] * (len(head) - 1)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def version(release):
    """
    >>> version("6.12.107+deb13-cloud-amd64"), version("unknown")
    ('6.12.107', 'unknown')
    """
    found = re.match(r"[0-9.]*[0-9]", release)
    return found[0] if found else release


def place_name(runs, kind):
    kernels = ", ".join(dict.fromkeys(map(version, runs.of(kind, "kernel"))))
    return f"Native, Linux {kernels}" if kind == "native" else f"Guests, Linux {kernels}"


def counted(number, what):
    """
    >>> counted(1, "seed"), counted(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def extent(runs, kind):
    return f"{counted(len(runs.programs(kind)), 'program')}, {sampled(runs, kind)}"


def sampled(runs, kind):
    number = runs.samples(kind)
    return counted(number, "interleaved round") if kind == "native" else counted(number, "seed") + ", virtual time"


@functools.cache
def published_changes():
    """DAMON v6's changes in percent: {(metric, config): {program: change}}, with the total where it has one."""
    with (REPOSITORY / "crates/cli/data/damon-v6.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] != "average"]
    changes = {}
    for name, metric in PUBLISHED.items():
        for config in ("rec", "thp", "ethp", "prcl"):
            column = f"{config}_percent"
            changes[metric, config] = {row["workload"]: row[column] for row in rows if row["metric"] == name and row[column]}
    return {key: of for key, of in changes.items() if of}


@functools.cache
def published():
    """The published changes in percent: {(metric, config): (total, least, most)}; the last two with their program."""
    found = {}
    for key, changes in published_changes().items():
        of = {program: float(change) for program, change in changes.items()}
        total = of.pop("total", None)
        if total is not None:
            single = [(value, program) for program, value in of.items()]
            found[key] = (total, min(single), max(single))
    return found


TOPICS = [
    ("rec", "Monitoring alone", ["runtime", "scaled", "call", "memused"]),
    ("prcl", "Paging out idle memory as published (`prcl`)", ["rss", "net", "memused", "runtime", "scaled", "call"]),
    ("prcl-tuned", "The same with lowtide's thresholds (`prcl-tuned`)", ["rss", "net", "memused", "runtime", "scaled", "call"]),
    ("auto", "The agent (`auto`)", ["rss", "net", "runtime", "call"]),
    ("age", "WMO's rule (`age`)", ["rss", "net", "runtime", "call"]),
    ("pressure", "Senpai's rule (`pressure`)", ["rss", "net", "runtime", "call"]),
    ("thp", "Huge pages everywhere (`thp`)", ["runtime", "call", "rss", "memused"]),
    ("ethp", "Huge pages where memory is used (`ethp`)", ["runtime", "scaled", "call", "rss", "memused"]),
    ("ethp-tuned", "The same with lowtide's thresholds (`ethp-tuned`)", ["runtime", "scaled", "call", "rss", "memused"]),
]


def conclusion(runs, kind, config, metrics):
    programs = runs.programs(kind)
    parts = []
    for metric in metrics:
        value = runs.over_programs(kind, programs, config, metric)
        if value:
            known = published().get((metric, config.removesuffix("-tuned")))
            beside = f" [{known[0]:+.2f}]" if known else ""
            parts.append(f"{METRICS[metric]} {shown(value)} %{beside}")
    return ", ".join(parts)


def run_with(runs, kind, config):
    """How many programs were run in a configuration."""
    return sum(bool(runs.logs(kind, program, config, "runtime")) for program in runs.programs(kind))


def is_less(value):
    """
    >>> is_less((-4.0, -8.0, 0.1)), is_less((-4.0, -8.0, -0.1)), is_less((-4.0, None, None))
    (False, True, True)
    """
    mean, _, high = value
    return (mean if high is None else high) < 0


def best(runs, kind):
    """The configuration that saves the most memory, net of zram, among those that are hardly slower, and in which all programs ran."""
    programs = runs.programs(kind)
    most = max((run_with(runs, kind, config) for config in runs.schemes(kind)), default=0)
    schemes = [config for config in runs.schemes(kind) if config != "rec" and run_with(runs, kind, config) == most]
    of = {config: [runs.over_programs(kind, programs, config, metric) for metric in ("net", "runtime", "call")] for config in schemes}
    cheap = {config: found for config, found in of.items() if None not in found[:2] and is_less(found[0]) and found[1][0] <= CHEAP}
    if not schemes:
        return []
    if not cheap:
        return [f"- No configuration saves memory, net of zram, for at most {CHEAP} % more runtime."]
    config, (net, runtime, call) = min(cheap.items(), key=lambda item: item[1][0])
    changes = f"memory net of zram {shown(net)} %, runtime {shown(runtime)} %, time of a call {shown(call)} %"
    return [f"- **The most memory saved, net of zram, for at most {CHEAP} % more runtime: `{config}`**, {changes}."]


def conclusions(runs, kind):
    lines = best(runs, kind)
    for config, topic, metrics in TOPICS:
        if changes := conclusion(runs, kind, config, metrics):
            few, all_ = run_with(runs, kind, config), len(runs.programs(kind))
            lines.append(f"- {topic}{f', of {few} of {all_} programs' if few < all_ else ''}: {changes}.")
    counts = [(LIMITS[kind_], counts_of(runs, kind, kind_)) for kind_ in LIMITS]
    if counts := [(name, of) for name, of in counts if any(of.values())]:
        held = "; ".join(f"{name} {of['holds']} of {sum(of.values())} ({of['killed']} failed)" for name, of in counts)
        lines.append(f"- Limits that hold (not killed, at most {100 * SLOWDOWN:g} % slower, without swap): {held}.")
    if tight := close_to_least(runs, kind):
        lines.append(f"- Within {100 * TIGHT - 100:.0f} % of the least that holds, of lowtide's limits that do: {tight}.")
    return lines


def close_to_least(runs, kind):
    """How many of lowtide's limits hold but would not if they were less by that much."""
    of = {program: [runs.verdict(kind, program, one)[0] for one in ("lowtide", "tight")] for program in runs.programs(kind)}
    held = [tight for own, tight in of.values() if own == "holds" and tight]
    return f"{len(held) - held.count('holds')} of {len(held)}" if held else ""


def counts_of(runs, kind, mechanism):
    verdicts = [runs.verdict(kind, program, mechanism)[0] for program in runs.programs(kind)]
    return {name: verdicts.count(name) for name in ("killed", "slower", "holds")}


def totals(runs, kind):
    """All programs: geometric means with their intervals, and the change of the sums beside the published one."""
    rows = []
    for config in runs.schemes(kind):
        for metric, name in METRICS.items():
            value = runs.over_programs(kind, runs.programs(kind), config, metric)
            summed = runs.summed(kind, config, metric)
            if value:
                known = published().get((metric, config.removesuffix("-tuned")))
                extremes = [f"{at:+.2f} ({program})" for at, program in known[1:]] if known else ["-", "-"]
                total = f"{known[0]:+.2f}" if known else "-"
                rows.append([config, name, shown(value), f"{summed:+.2f}", total, *extremes])
    head = ["configuration", "metric", "mean of the programs", "of the sums", "DAMON v6, of the sums", "its least", "its most"]
    return table(head, rows)


def paces(programs):
    """Programs by what slows them down: their calls take longer, or they do.

    >>> paces(["sort", "redis", "gcc"]), paces(["redis"])
    ({'at a fixed rate': ['redis'], 'as fast as they can': ['sort', 'gcc']}, {'at a fixed rate': ['redis']})
    """
    names = {False: "at a fixed rate", True: "as fast as they can"}
    parts = {name: [program for program in programs if (program in WORK) == fast] for fast, name in names.items()}
    return {name: members for name, members in parts.items() if members}


def by_program(runs, kind, metric):
    """A row for each family and its programs, for each pace and for all; a column for each configuration."""
    configs, rows = runs.schemes(kind), []

    def together(name, members):
        changes = (runs.over_programs(kind, members, config, metric) for config in configs)
        return [f"**{name}**", *(f"**{shown(value)}**" for value in changes)]

    for name in runs.family_names(kind):
        members = [program for program in runs.programs(kind) if runs.families[program] == name]
        rows.append(together(name, members))
        for program in members:
            rows.append([program, *(cell(runs, kind, program, config, metric) for config in configs)])
    programs = runs.programs(kind)
    rows += [together(name, members) for name, members in {**paces(programs), "all": programs}.items()]
    return table(["program", *configs], rows)


def cell(runs, kind, program, config, metric):
    logs = runs.logs(kind, program, config, metric)
    failed = sum(values is None for values in runs.values.get((kind, program, config), {}).values())
    if failed:
        return f"{shown(change(logs))}, {failed} failed" if logs else "failed"
    return shown(change(logs))


def beyond(runs, kind, program, config, metric):
    """By how much a metric is above orig's, and the runtime; `None` where either is not known."""
    with_it, runtime = (runs.mean(kind, program, config, name) for name in (metric, "runtime"))
    without = runs.mean(kind, program, runs.original(kind, program, config), metric)
    return None if None in (with_it, runtime, without) else (with_it - without, runtime)


def monitor_cpu(runs, kind):
    """CPU time of lowtide beyond that without monitor, as a share of the runtime."""
    configs = [config for config in runs.schemes(kind) if is_monitored(config)]
    scale = 100 if kind == "native" else 100 * GUEST_CORE / CORE
    rows, shares = [], collections.defaultdict(dict)
    for program in runs.programs(kind):
        for config in configs:
            if more := beyond(runs, kind, program, config, "cpu"):
                shares[config][program] = scale * more[0] / more[1]
        rows.append([program, *(f"{shares[config][program]:.2f}" if program in shares[config] else "-" for config in configs)])
    for name, members in {**paces(runs.programs(kind)), "mean": runs.programs(kind)}.items():
        known = ([shares[config][program] for program in members if program in shares[config]] for config in configs)
        rows.append([f"**{name}**", *(f"**{statistics.mean(of):.2f}**" if of else "-" for of in known)])
    return table(["program", *configs], rows)


@functools.cache
def refault_s():
    """Seconds that bringing a page back from zram takes on a real core."""
    counts = (line.rpartition(",") for line in (REPOSITORY / "bench/instructions.csv").read_text().splitlines())
    return {name: int(count) for name, _, count in counts}["a page brought back"] / CORE


def faults(runs, kind):
    """Major faults beyond those of orig, and the share of the runtime that these take on a real core."""

    def shown_faults(program, config):
        more = beyond(runs, kind, program, config, "faults")
        if more is None:
            return "-"
        number, runtime = more
        return f"{number:,.0f}, {100 * number * refault_s() / runtime:.2f} %" if number > 0 else "0"

    configs = runs.schemes(kind)
    rows = [[program, *(shown_faults(program, config) for config in configs)] for program in runs.programs(kind)]
    return table(["program", *configs], rows)


def idle_share(runs, kind, program):
    """Memory that was idle for IDLE_S, of what was resident, both on average over the recorded run; `None` without a record."""
    for path in sorted(runs.folder.glob(f"{kind}-*/{program}/record/{program}-rec-1/summary.json")):
        summary = json.loads(path.read_text())
        resident = summary["memory"]["rss"]["avg_bytes"]
        idle = [row["anon_bytes"] + row["file_bytes"] for row in summary["cold"] if row["age_s"] == IDLE_S]
        if idle and resident:
            return idle[0] / resident
    return None


def kept_share(runs, kind, program, config):
    """What zram kept, of the memory that was saved; `None` where too little was."""
    original = runs.original(kind, program, config)
    (before, _), (after, net) = ([runs.mean(kind, program, one, metric) for metric in ("rss", "net")] for one in (original, config))
    if None in (before, after, net) or before - after < TELLING:
        return None
    return (net - after) / (before - after)


def idle_memory(runs, kind):
    """What could be saved, and what was: a scheme takes nothing of what is in use all the time."""
    configs = [config for config in runs.schemes(kind) if config in SAVING]
    columns = collections.defaultdict(list)

    def percent(column, part):
        if part is not None:
            columns[column].append(100 * part)
        return "-" if part is None else f"{100 * part:.0f}"

    rows = []
    for program in runs.programs(kind):
        idle = idle_share(runs, kind, program)
        cells = [program, percent("idle", idle)]
        for config in configs:
            logs = runs.logs(kind, program, config, "rss")
            cells.append(percent(config, 1 - math.exp(statistics.mean(logs)) if logs else None))
            cells.append(percent((config, "kept"), kept_share(runs, kind, program, config)))
        if idle is not None:
            rows.append(cells)
    keys = ["idle", *(key for config in configs for key in (config, (config, "kept")))]
    rows.append(["**mean**", *(f"**{statistics.mean(columns[key]):.0f}**" if columns[key] else "-" for key in keys)])
    head = [f"idle for {IDLE_S} s", *(name for config in configs for name in (f"`{config}`", "kept in zram"))]
    return table(["program", *head], rows) if len(rows) > 1 else ""


def limit_tables(runs, kind):
    rows, mechanisms = [], [one for one in LIMITS if any(key[::2] == (kind, one) for key in runs.bytes)]
    for mechanism in mechanisms:
        of = counts_of(runs, kind, mechanism)
        limits = [[runs.bytes.get((kind, program, one)) for one in (mechanism, "lowtide")] for program in runs.programs(kind)]
        over = [this / own - 1 for this, own in limits if this and own]
        median = f"{100 * statistics.median(over):+.0f} %" if over else "-"
        rows.append([LIMITS[mechanism], *map(str, (sum(of.values()), of["killed"], of["slower"], of["holds"])), median])
    summary = table(["limit", "programs", "killed or failed", "slower than allowed", "holds", "over lowtide's, median"], rows)
    rows = []
    for program in runs.programs(kind):
        cells = [limit_cell(runs, kind, program, mechanism) for mechanism in mechanisms]
        if set(cells) != {"-"}:
            rows.append([program, *cells])
    return summary + "\n" + table(["program", *(LIMITS[one] for one in mechanisms)], rows)


def limit_cell(runs, kind, program, mechanism):
    verdict, slowdown = runs.verdict(kind, program, mechanism)
    if verdict is None:
        return "-"
    outcome = {"killed": "**killed or failed**", "slower": f"**{slowdown or 0:+.1f} %**", "holds": f"{slowdown or 0:+.1f} %"}[verdict]
    return f"{runs.bytes.get((kind, program, mechanism), 0) / MIB:.0f} MiB, {outcome}"


def section(runs, kind):
    sampling = extent(runs, kind) + ("; `rec` and schemes by smaps, without `ethp`, which needs DAMON" if kind == "native" else "")
    text = [f"## {place_name(runs, kind)}\n", f"{sampling}.\n", totals(runs, kind)]
    for metric in BY_PROGRAM if kind == "native" else [*BY_PROGRAM, "scaled"]:
        text += [f"### {place_name(runs, kind)}: {METRICS[metric]}\n", by_program(runs, kind, metric)]
    text += [f"### {place_name(runs, kind)}: major faults\n", FAULTS, faults(runs, kind)]
    text += [f"### {place_name(runs, kind)}: CPU time\n", CPU, monitor_cpu(runs, kind)]
    if idle := idle_memory(runs, kind):
        text += [f"### {place_name(runs, kind)}: idle memory\n", IDLE, idle]
    if any(key[0] == kind for key in runs.bytes):
        text += [f"### {place_name(runs, kind)}: limits\n", limit_tables(runs, kind)]
    return text


def lists(runs):
    text = []
    if runs.failed:
        rows = [[*names, why.partition("; see ")[0].replace("|", "/")] for *names, why in runs.failed]
        text += ["## Runs that failed\n", table(["place", "program", "configuration", "why"], rows, "---")]
    if runs.missing:
        by_place = collections.defaultdict(dict)
        for unit in runs.missing:
            by_place[unit["place"], unit["group"]][unit["program"]] = None
        text += ["## Not run, or not completed\n"]
        for (place, group), programs in by_place.items():
            text.append(f"- {place}, {group}: {'all' if len(programs) == len(runs.families) else ', '.join(programs)}")
    return text


def made_by(runs):
    """When, by what and of which commits the runs are."""
    commits = sorted({unit["commit"] for unit in runs.made}) or [runs.head["commit"]]
    dates = sorted(unit["date"] for unit in runs.made) or [datetime.date.today().isoformat()]
    when = dates[0][:10] if dates[0][:10] == dates[-1][:10] else f"{dates[0][:10]} to {dates[-1][:10]}"
    commit = counted(len(commits), "commit").removeprefix(f"{len(commits)} ")
    settings = "; ".join(sorted({unit["settings"] for unit in runs.made}))
    return f"Written by `{runs.head['command']}` at {commit} {', '.join(commits)}, {when}{f' ({settings})' if settings else ''}."


QUICK_NOTE = "This is the quick evaluation: few programs and configurations, one seed. It shows that everything works, not how well."
ABOUT = """\
Percent over `orig` (no scheme; all configurations have a zram swap of 2 GiB): geometric means of ratios of the same seed or
round, and their 95 % intervals (Student's t on the logarithms), of a program over rounds, of several programs over programs, each
of which counts once. Fewer than three have no interval. Programs that work at a fixed rate take as long however slow they are: of
these, compare the time of a call. "Runtime on a real core" is that of a guest, whose core executes a billion instructions a second,
with lowtide's own CPU time as a core of 6.4 billion needs it: it works for the time that passes, so that its share is larger on a
slower core, and what works at a fixed rate does not wait for it. In square brackets: DAMON v6, of the sums over its 25 programs on
another machine.
Configurations: [schemes](../schemes.md), [comparing](../compare.md). To choose from: [index.html](index.html).
"""


CPU = """\
CPU time of monitoring and of schemes (agents have theirs by themselves), in percent of the runtime: in guests of a core of 6.4
billion instructions a second, as a guest's executes one billion. What works for a time, as monitors do, takes a larger share of a
slower core.
"""
IDLE = """\
Memory that was idle for ten seconds or longer, in percent of what was resident, on average over the recorded run; by how many
percent the configurations made what is resident less; and how much of that is kept in zram, in percent.
"""
FAULTS = """\
Those of a run beyond orig's, and the share of the runtime that these take on a core of 6.4 billion instructions a second, by the
instructions counted for bringing a page back from zram ([instructions](instructions.md)).
"""


def as_published():
    """DAMON v6's changes by program."""
    changes = published_changes()
    programs = dict.fromkeys(program for of in changes.values() for program in of)
    head = ["program", *(f"{config}, {metric}" for metric, config in changes)]
    return table(head, [[program, *(of.get(program, "-") for of in changes.values())] for program in programs])


def markdown(runs):
    text = ["# Programs in several configurations\n", made_by(runs) + "\n"]
    if runs.head["quick"]:
        text += [f"**{QUICK_NOTE}**\n"]
    text += [ABOUT]
    for kind in runs.kinds:
        text += [f"**{place_name(runs, kind)}** ({extent(runs, kind)})\n"]
        text += [*conclusions(runs, kind), ""]
    for kind in runs.kinds:
        text += section(runs, kind)
    text += ["## DAMON v6, as published\n", "Percent over orig, on another machine.\n", as_published()]
    return "\n".join(text + lists(runs)).rstrip() + "\n"


# --- as a page


def page_data(runs):
    """What the page shows, with logarithms of ratios instead of percent: it has to average what its reader picks."""
    cells, had = {}, {name: of for name, of in runs.families.items() if any(key[1] == name for key in runs.values)}
    for kind, program, config in runs.values:
        if config not in ORIGINALS:
            of = {metric: [round(log, 5) for log in runs.logs(kind, program, config, metric)] for metric in BY_PROGRAM}
            failed = sum(values is None for values in runs.values[kind, program, config].values())
            cells.setdefault(kind, {}).setdefault(program, {})[config] = {**of, "failed": failed}
    return {
        "head": made_by(runs).replace("`", ""),
        "note": QUICK_NOTE if runs.head["quick"] else "",
        "places": [{"id": kind, "name": place_name(runs, kind), "samples": sampled(runs, kind)} for kind in runs.kinds],
        "families": {name: [program for program, of in had.items() if of == name] for name in had.values()},
        "configs": [name for name in runs.configs if name not in ORIGINALS],
        "t95": [None, *(round(t95(degrees), 4) for degrees in range(1, 61))],
        "cells": cells,
    }


def page(runs):
    template = (pathlib.Path(__file__).parent / "evaluation.html").read_text()
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = json.dumps(page_data(runs), separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("@HASH@", f"sha256-{digest}").replace("@DATA@", data)


def main():
    words = [word for word in sys.argv[1:] if word != "--quick"]
    match words:
        case ["plan", folder, suite]:
            plan(pathlib.Path(folder), suite, "--quick" in sys.argv)
        case ["suite", folder, place, program, group]:
            print(unit_suite(pathlib.Path(folder), place, program, group), end="")
        case ["budgets", record]:
            print(json.dumps(budgets(record)))
        case [folder, *out]:
            runs = Runs(pathlib.Path(folder), out[1:])
            target = pathlib.Path(out[0] if out else folder)
            (target / "programs.md").write_text(markdown(runs))
            (target / "index.html").write_text(page(runs))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
