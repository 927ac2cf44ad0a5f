"""A phone with more apps than memory.

`phone.py run` starts apps in an order, one after the other in the foreground for a while. An app holds anonymous memory, of
which a third is used while it is in the foreground and the rest only when it starts, and a file of its own, likewise. One
that was killed is started again (a cold start); else it goes on (a warm start: until it has touched all that it uses).

What kills is the rule of Android's low memory killer: while less than so much is free or a file's, the app that has been in the
background for longest is killed. Only apps of this run are. `phone.py table` prints the results of runs."""

import argparse
import collections
import glob
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time

MIB = 1 << 20
PAGE = 4096
NAMES = {"round": "ABC..ABC..", "back": "ABC..CBA.."}
BACKGROUND_ADJ = 900  # Android's CACHED_APP_MIN_ADJ


def setting(name, usual):
    return float(os.environ.get(name, usual))


def app(anon_mib, file):
    """An app: says so when it has started, and at each line that it reads touches what it uses."""
    # A third of each page is random, so that it compresses as memory does.
    piece = b"".join(os.urandom(PAGE // 3).ljust(PAGE, b"x") for _ in range(256))
    anon = bytearray(piece) * anon_mib
    with open(file, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
    sum(mapped[::PAGE])
    print("started", flush=True)
    for _ in sys.stdin:
        begin = time.monotonic()
        sum(anon[: len(anon) // 3 : PAGE])
        sum(mapped[: len(mapped) // 3 : PAGE])
        print(time.monotonic() - begin, flush=True)


class App:
    """An app as its phone sees it."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.group = f"{options.groups}/app-{name}"
        self.file = f"{options.folder}/{name}"
        self.process, self.left_s = None, 0.0
        os.makedirs(self.group, exist_ok=True)

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        command = [sys.executable, __file__, "app", str(int(setting("ANON_MIB", 170))), self.file]
        enter = f'echo 0 >"$1/cgroup.procs" && shift && exec "$@"'
        self.process = subprocess.Popen(
            ["sh", "-c", enter, "sh", self.group, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self.process.stdout.readline().strip() == "started"

    def use(self):
        """Touches what it uses; seconds that it took, or None if it is gone."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            return None

    def rank(self, background):
        """Sets its oom_score_adj, and gives the agent a hint."""
        try:
            with open(f"/proc/{self.process.pid}/oom_score_adj", "w") as file:
                file.write(str(BACKGROUND_ADJ if background else 0))
        except OSError:
            return
        if self.options.socket:
            hint = "background" if background else "foreground"
            cgroup = f"{self.options.path}/app-{self.name}"
            subprocess.run(
                [self.options.lowtide, "hint", hint, "--cgroup", cgroup, "--socket", self.options.socket], check=False
            )


def available_bytes(groups):
    """Free, or a file's and clean: what Android's rule reads. Of the machine, or of a phone of PHONE_MIB inside of it: what
    is neither anonymous memory of its apps nor used by zram."""
    phone = int(setting("PHONE_MIB", 0)) * MIB
    if not phone:
        with open("/proc/meminfo") as meminfo:
            return next(int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemAvailable"))
    with open(f"{groups}/memory.stat") as stat:
        values = dict(line.split() for line in stat)
    anon = int(values["total_rss"] if "total_rss" in values else values["anon"])
    kept = 0
    for path in glob.glob("/sys/block/zram*/mm_stat"):
        with open(path) as stat:
            kept += int(stat.read().split()[2])
    return phone - anon - kept


class Killer(threading.Thread):
    """The low memory killer."""

    def __init__(self, apps, groups):
        super().__init__(daemon=True)
        self.apps, self.groups, self.kills, self.ended = apps, groups, 0, threading.Event()
        self.front = None

    def run(self):
        spare = setting("SPARE_MIB", 64) * MIB
        while not self.ended.wait(0.1):
            if available_bytes(self.groups) >= spare:
                continue
            there = [app for app in self.apps if app is not self.front and app.is_alive()]
            if there:
                oldest = min(there, key=lambda app: app.left_s)
                oldest.process.kill()
                oldest.process.wait()
                self.kills += 1
                # What it held is free only after a moment.
                self.ended.wait(0.3)


def orders(kind, count, cycles):
    once = list(range(count))
    if kind == "round":
        return once * cycles
    return (once + once[-2:0:-1]) * (cycles // 2) + (once if cycles % 2 else once[:1])


def kernel_kills():
    with open("/proc/vmstat") as vmstat:
        return next(int(line.split()[1]) for line in vmstat if line.startswith("oom_kill "))


def run(options):
    apps = [App(chr(ord("a") + number), options) for number in range(int(setting("APPS", 8)))]
    size = int(setting("FILE_MIB", 40)) * MIB
    for one in apps:
        with open(one.file, "wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    killer, before = Killer(apps, options.groups), kernel_kills()
    killer.start()
    cold, warm, front = [], [], None
    for at in orders(options.order, len(apps), int(setting("CYCLES", 3))):
        killer.front = apps[at]
        if front is not None and front.is_alive():
            front.left_s = time.monotonic()
            front.rank(background=True)
        front = apps[at]
        begin, was_there = time.monotonic(), front.is_alive()
        if was_there:
            front.rank(background=False)
            begin = time.monotonic()
            was_there = front.use() is not None
        if was_there:
            warm.append(time.monotonic() - begin)
        else:
            begin = time.monotonic()
            if not front.start() or front.use() is None:
                print(f"{front.name} did not start", file=sys.stderr)
            cold.append(time.monotonic() - begin)
            front.rank(background=False)
        until = time.monotonic() + setting("STAY_S", 6)
        while time.monotonic() < until:
            front.use()
            time.sleep(0.5)
    killer.ended.set()
    killer.join()
    for one in apps:
        if one.is_alive():
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
    result = {
        "order": options.order,
        "agent": bool(options.socket),
        "switches": len(cold) + len(warm),
        "kills": killer.kills,
        "kernel_kills": kernel_kills() - before,
        "cold_s": cold,
        "warm_s": warm,
    }
    print(json.dumps(result))


def table(path):
    runs = collections.defaultdict(list)
    for line in open(path):
        one = json.loads(line)
        runs[one["order"], one["agent"]].append(one)
    print("| order | agent | switches | kills | by the kernel | cold starts | mean, s | warm starts | mean, s | median, s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (order, agent), some in sorted(runs.items()):
        total = lambda key: sum(one[key] for one in some)
        cold = [value for one in some for value in one["cold_s"]]
        warm = sorted(value for one in some for value in one["warm_s"])
        mean = lambda values: f"{sum(values) / len(values):.2f}" if values else "-"
        cells = [NAMES[order], "yes" if agent else "no", total("switches"), total("kills"), total("kernel_kills"), len(cold),
                 mean(cold), len(warm), mean(warm), f"{warm[len(warm) // 2]:.2f}" if warm else "-"]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")
    changes(runs)


def changes(runs):
    """By how much the agent changes kills and slow launches, with bootstrapped intervals over the rounds."""
    cold = [value for some in runs.values() for one in some for value in one["cold_s"]]
    # A warm start that takes as long as a cold one is as slow.
    mean_s = sum(cold) / max(1, len(cold))
    slow = lambda one: len(one["cold_s"]) + sum(value > mean_s for value in one["warm_s"])
    rounds = min(len(some) for some in runs.values())
    kinds = sorted({order for order, _ in runs})
    chance = random.Random(1)
    print("\n| | order | without | with | change | 95 % interval |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for name, get in (("kills", lambda one: one["kills"] + one["kernel_kills"]), ("slow launches", slow)):
        for some in [[kind] for kind in kinds] + [kinds]:
            of = lambda at, agent: sum(get(runs[kind, agent][at]) for kind in some)
            pairs = [(of(at, False), of(at, True)) for at in range(rounds)]
            without, with_it = (sum(pair[which] for pair in pairs) for which in (0, 1))
            change = ends = "-"
            if without and rounds > 1:
                ratio = lambda drawn: 100 * (sum(b for _, b in drawn) / max(1, sum(a for a, _ in drawn)) - 1)
                drawn = sorted(ratio(chance.choices(pairs, k=rounds)) for _ in range(4000))
                change, ends = f"{ratio(pairs):+.0f} %", f"{drawn[100]:+.0f} to {drawn[3899]:+.0f} %"
            order = " and ".join(NAMES[kind] for kind in some)
            print(f"| {name} | {order} | {without} | {with_it} | {change} | {ends} |")


def main():
    if sys.argv[1] == "app":
        return app(int(sys.argv[2]), sys.argv[3])
    if sys.argv[1] == "table":
        return table(sys.argv[2])
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=["round", "back"], required=True)
    for name in ("--groups", "--path", "--folder", "--lowtide"):
        parser.add_argument(name, required=True)
    parser.add_argument("--socket")
    return run(parser.parse_args(sys.argv[2:]))


if __name__ == "__main__":
    main()
