"""Draws the figures of docs/evaluation.md from the tables in docs/evaluation and from those of DAMON v6: `plots.py`. They are in
docs/plots, but for budgets.svg, which budgets.py draws. Needs matplotlib."""

import json
import pathlib
import re

import evaluation
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "lowtide", "font.size": 9, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False})
from matplotlib import pyplot  # noqa: E402  # after its backend

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TABLES = REPOSITORY / "docs/evaluation"
# Of Okabe and Ito, which readers without colour vision can tell apart.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#888888"


def table(page, heading):
    """The rows of the first table below a line that contains the heading, as lists of cells; the head is left out."""
    lines = iter((TABLES / page).read_text().splitlines())
    for line in lines:
        if heading in line and not line.startswith("|"):
            break
    else:
        raise SystemExit(f"{page}: {heading}: no such heading")
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip().strip("*") for cell in line.strip("| ").split("|")])
        elif rows:
            break
    return rows[2:]


def numbers(cell):
    """All numbers in a cell. A dash between digits is a range, not a sign."""
    return [float(found.replace(",", "")) for found in re.findall(r"(?<![\d.])[-+]?\d[\d,]*\.?\d*", cell)]


def number(cell):
    return next(iter(numbers(cell)), None)


def published(metric, config):
    """DAMON v6's changes in percent by program, and in total where it has one."""
    changes = {name: float(change) for name, change in evaluation.published_changes()[evaluation.PUBLISHED[metric], config].items()}
    return changes, changes.pop("total", None)


def suite(metric, config):
    """The same natively, from `make compare`."""
    programs = {row[0]: float(row[2]) for row in table("suite.md", f"**{metric}, percent over orig") if row[1] == config}
    names = ["orig", "rec", "thp", "ethp-tuned", "prcl", "prcl-tuned"]
    total = next(row for row in table("suite.md", f"**{metric}, ") if row[0] == "total")
    return programs, float(total[2 * names.index(config) + 1])


def guests(metric):
    """The same in guests of the newest kernel, by configuration: {configuration: {program: change}}."""
    page = (TABLES / "programs.md").read_text()
    place, head = re.findall(rf"### (Guests, Linux .*): {metric}\n\n(\|.*\|)", page)[-1]
    configs = [cell.strip() for cell in head.strip("| ").split("|")][1:]
    # Families have rows, too.
    names = {program["name"] for program in json.loads((TABLES / "runs/evaluation.json").read_text())["programs"]}
    rows = [row for row in table("programs.md", f"{place}: {metric}") if row[0] in names]
    return {config: {row[0]: number(row[1 + at]) for row in rows if number(row[1 + at]) is not None} for at, config in enumerate(configs)}


def slowdowns(config):
    """In guests: the time of a call where programs work at a fixed rate, and otherwise the runtime."""
    return {**guests("runtime")[config], **guests("time of a call")[config]}


def save(figure, name):
    figure.tight_layout()
    figure.savefig(REPOSITORY / "docs/plots" / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def strips(axes, rows):
    """A line for each (label, changes by program, total or None, colour): a dot a program, and a bar for the total."""
    for at, (label, programs, total, colour) in enumerate(rows):
        axes.plot(list(programs.values()), [at] * len(programs), "o", color=colour, alpha=0.5, markersize=5, markeredgewidth=0)
        if total is not None:
            axes.plot([total, total], [at - 0.3, at + 0.3], color=colour, linewidth=2.5)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", color="#dddddd")


def lines_from_the_top(axes, labels, origin):
    """A line for each label, the first at the top, and one across them with which they are compared."""
    axes.axvline(origin, color="black", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()


def monitoring():
    figure, axes = pyplot.subplots(figsize=(8, 2.2))
    strips(
        axes,
        [
            ("DAMON v6, recording", *published("runtime", "rec"), ORANGE),
            ("lowtide, native, smaps", *suite("runtime", "rec"), BLUE),
            ("lowtide, guests, DAMON", slowdowns("rec"), None, GREEN),
        ],
    )
    axes.set_xlabel("change of runtime, in guests of the time of a call, % (dot: a program; bar: the total)")
    save(figure, "monitoring")


def schemes():
    figure, (saved, cost) = pyplot.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    series = [
        ("DAMON v6, prcl", lambda metric: published(metric, "prcl"), ORANGE),
        ("native, prcl", lambda metric: suite(metric, "prcl"), BLUE),
        ("native, prcl-tuned", lambda metric: suite(metric, "prcl-tuned"), BLUE),
        ("DAMON v6, thp", lambda metric: published(metric, "thp"), ORANGE),
        ("native, thp", lambda metric: suite(metric, "thp"), BLUE),
        ("DAMON v6, ethp", lambda metric: published(metric, "ethp"), ORANGE),
        ("native, ethp-tuned", lambda metric: suite(metric, "ethp-tuned"), BLUE),
    ]
    # Of huge pages DAMON v6 has published memory in use on the system only.
    metrics = ["rss.avg"] * 3 + ["memused.avg"] * 4
    strips(saved, [(label, *read(metric), colour) for (label, read, colour), metric in zip(series, metrics)])
    strips(cost, [(label, *read("runtime"), colour) for label, read, colour in series])
    saved.set_xlabel("change of memory, % (prcl: resident; thp, ethp: the system's)")
    cost.set_xlabel("change of runtime, % (dot: a program; bar: the total)")
    save(figure, "schemes")


def accuracy():
    rows = table("steady-state.md", "## In a guest with DAMON")
    figure, axes = pyplot.subplots(figsize=(8, 3))
    for at, row in enumerate(rows):
        truth, estimate, (low, high) = number(row[2]), number(row[3]), numbers(row[5])[:2]
        off = [100 * (value / truth - 1) for value in (low, estimate, high)]
        colour = ORANGE if "not" in row[5] else BLUE
        axes.plot([off[0], off[2]], [at, at], color=colour, linewidth=2)
        axes.plot(off[1], at, "o", color=colour)
    axes.axvspan(-5, 5, color="#eeeeee", zorder=0)
    lines_from_the_top(axes, [row[0] for row in rows], 0)
    axes.set_xlabel("estimate and 95 % interval, % off the truth (orange: interval without the truth; grey: 5 %)")
    save(figure, "accuracy")


def intervals():
    rows = table("intervals.md", "# How often intervals")
    kinds = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = pyplot.subplots(figsize=(8, 2.6))
    for row in rows:
        values = [value for value in map(number, row[2:]) if value is not None]
        axes.plot(values, [kinds.index(row[0])] * len(values), "o", color=BLUE, alpha=0.4, markersize=5, markeredgewidth=0)
    axes.axvspan(90, 98, color="#eeeeee", zorder=0)
    lines_from_the_top(axes, kinds, 95)
    axes.set_xlabel("intervals that contain the truth, % (dot: programs of a kind, and samples)")
    save(figure, "intervals")


def limits():
    rows = table("limits.md", "## As they are pasted")
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for at, row in enumerate(rows):
        limit, least = number(row[3]), numbers(row[5])
        lowest, most = limit / max(least), limit / min(least)
        if "more than" in row[5]:
            axes.annotate("", (0.9 * lowest, at), (lowest, at), arrowprops={"arrowstyle": "->", "color": ORANGE})
        elif "less than" in row[5]:
            axes.annotate("", (1.1 * lowest, at), (lowest, at), arrowprops={"arrowstyle": "->", "color": BLUE})
        else:
            axes.plot([lowest, most], [at, at], color=BLUE if most >= 1 else ORANGE, linewidth=5, solid_capstyle="butt")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvspan(1, 1.15, color="#eeeeee", zorder=0)
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[1]}{', swap' if row[2] == 'yes' else ''}" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0.4, 2.3)
    axes.set_xlabel("printed limit over the lowest that holds (orange: too low; arrow: by more than was searched)")
    axes.grid(axis="x", color="#dddddd")
    save(figure, "limits")


def curve():
    figure, axes = pyplot.subplots(figsize=(4.6, 4.2))
    for heading, label, colour in (("## With generations", "generations", BLUE), ("## With ranges", "ranges of addresses", ORANGE)):
        rows = table("curve.md", heading)
        axes.plot([number(row[2]) for row in rows], [number(row[3]) for row in rows], "o", color=colour, label=label)
    ends = (1.5, 250)
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="#eeeeee", zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="evicted memory, predicted, MiB", ylabel="measured, MiB (grey: 10 %)")
    axes.legend(frameon=False)
    save(figure, "curve")


def agent():
    rows = {row[0]: row for row in table("agent.md", "## The suite")}
    total = rows.pop("total")
    columns = [("auto", 3, BLUE), ("age (WMO)", 5, GREEN), ("pressure (Senpai)", 7, GREY)]
    figure, axes = pyplot.subplots(figsize=(8, 2.4))
    strips(axes, [(name, {key: number(row[at]) for key, row in rows.items()}, number(total[at]), colour) for name, at, colour in columns])
    axes.set_xlabel("change of resident memory, %, the suite natively (a dot: a program; a bar: the total)")
    save(figure, "agent")


def guard():
    """Slowdowns of both programs of a mix: (mix, table, row of either, column, label)."""
    native, guest = "### Two LU decompositions, native", "### Two bit reversals, in a guest"

    def slowdown(heading, column):
        return [max(numbers(row[column])) if "(" not in row[column] else float(re.search(r"\(([\d.]+)\)", row[column])[1]) for row in table("guard.md", heading)[:2]]

    bars = [
        ("published, two LU: left alone", [3.57, 3.40], GREY),
        ("published, two LU: protected", [1.63, 2.18], ORANGE),
        ("two LU, zram: left alone", slowdown(native, 1), GREY),
        ("two LU, zram: guard", slowdown(native, 2), BLUE),
        ("two LU, disk: guard (left alone: one is killed)", slowdown(native, 4), BLUE),
        ("two bit reversals, guest: left alone", slowdown(guest, 1), GREY),
        ("two bit reversals, guest: protected", slowdown(guest, 2), BLUE),
        ("two bit reversals, guest: turns", slowdown(guest, 3), BLUE),
    ]
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    for at, (_, pair, colour) in enumerate(bars):
        axes.barh([at - 0.2, at + 0.2], pair, height=0.36, color=colour)
    lines_from_the_top(axes, [bar[0] for bar in bars], 1)
    axes.set_xlabel("slowdown of either program (1: alone, with all of its memory)")
    axes.grid(axis="x", color="#dddddd")
    save(figure, "guard")


def programs():
    net, configs = guests("memory net of zram"), ["prcl", "prcl-tuned", "auto", "age", "pressure"]
    slower = {config: slowdowns(config) for config in configs}
    names = list(net["auto"])
    figure, (saved, cost) = pyplot.subplots(1, 2, figsize=(10, 1.2 + 0.24 * len(names)), sharey=True)
    for axes, values, label in ((saved, net, "change of memory, net of zram, %"), (cost, slower, "change of the time of a call, or of the runtime, %")):
        for config, mark, colour in zip(configs, "sDo^v", (ORANGE, "#cc79a7", BLUE, GREEN, GREY)):
            axes.plot([values[config].get(name) for name in names], range(len(names)), mark, color=colour, label=config, markersize=5)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel(label)
        axes.grid(color="#dddddd")
    saved.set_yticks(range(len(names)), names)
    saved.invert_yaxis()
    saved.legend(frameon=False, ncols=len(configs), loc="lower left", bbox_to_anchor=(0, 1))
    save(figure, "programs")


def fleet():
    rows = table("fleets.md", "## Accuracy")
    figure, axes = pyplot.subplots(figsize=(8, 2.2))
    for at, row in enumerate(rows):
        axes.plot(number(row[4]), at, "o", color=BLUE, label="evicted memory" if at == 0 else None)
        axes.plot(number(row[7]), at, "D", color=ORANGE, label="refaults" if at == 0 else None)
    lines_from_the_top(axes, [f"{row[0]} hosts, {row[1]}" for row in rows], 0)
    axes.set_xlabel("replayed, % off the simulated machines")
    axes.grid(axis="x", color="#dddddd")
    axes.legend(frameon=False)
    save(figure, "fleet")


if __name__ == "__main__":
    for draw in (monitoring, schemes, accuracy, intervals, limits, curve, agent, guard, programs, fleet):
        draw()
