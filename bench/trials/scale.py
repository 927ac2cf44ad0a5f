#!/usr/bin/env python3
"""What a record costs as its target grows: processes, memory in use, and address space of which one page in 512 is there.

`scale.py [KIND:SIZE]...`, by default processes:100 processes:1000 processes:10000 memory:1 memory:4 memory:16 sparse:64 (GiB).
Each target runs, and is recorded for SECONDS_EACH (60). An eighth of its memory is in use. Prints CPU time of lowtide and of
the kernel's thread that works for it, lowtide's memory at most, and the working set beside the true one.

Environment: LOWTIDE, SECONDS_EACH, OPTIONS (of `lowtide record`)."""

import json
import mmap
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GIB, MIB, PAGE = 1 << 30, 1 << 20, 4096
MAP_NORESERVE = 0x4000  # Python has no name for it before 3.13
USUAL = "processes:100 processes:1000 processes:10000 memory:1 memory:4 memory:16 sparse:64"


def processes(count):
    """So many processes with 64 KiB, of which each eighth uses it again and again."""
    for number in range(count):
        if os.fork() == 0:
            memory = mmap.mmap(-1, 64 << 10, flags=mmap.MAP_PRIVATE)
            while True:
                memory[::PAGE] = b"x" * len(memory[::PAGE])
                if number % 8:
                    signal.pause()
                time.sleep(0.5)


def pages(memory, step):
    """Touches a page in each `step` bytes, all of them at first, then an eighth again and again."""
    memory[::step] = b"x" * len(memory[::step])
    print("ready", flush=True)
    used = memory[: len(memory) // 8 : step]
    while True:
        memory[: len(memory) // 8 : step] = used
        time.sleep(0.5)


def target(kind, size):
    """Does not return. Says `ready` once it is as large as it will be."""
    if kind == "processes":
        processes(size)
        print("ready", flush=True)
        while True:
            signal.pause()
    memory = mmap.mmap(-1, size * GIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages(memory, PAGE if kind == "memory" else 2 * MIB)


def measured(kind, size, folder):
    """The row of the table."""
    command = [sys.executable, __file__, "target", kind, str(size)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        started.stdout.readline()
        record = os.path.join(folder, "record")
        options = ["--duration", os.environ.get("SECONDS_EACH", "60") + "s", *shlex.split(os.environ.get("OPTIONS", ""))]
        command = [os.environ.get("LOWTIDE", "lowtide"), "record", "--pid", str(started.pid), "--quiet", "--out", record, *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        with open(os.path.join(record, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        shutil.rmtree(os.path.join(folder, "record"), ignore_errors=True)
    monitor = summary["monitor"]
    # What is in use is touched each half second: all windows have the same.
    used = [row["avg_bytes"] for row in summary["working_set"] if row["avg_bytes"] is not None]
    used = f"{used[0] / MIB:.1f}" if used else "-"
    true = {"processes": "-", "memory": f"{size * GIB / 8 / MIB:.0f}", "sparse": f"{size * GIB / 8 / 512 / MIB:.0f}"}[kind]
    row = [f"{kind} {size}", monitor["backend"], f"{monitor['cpu_percent']:.2f}", f"{monitor['own_peak_rss_bytes'] / MIB:.1f}", used, true]
    return "| " + " | ".join(row) + " |"


def main():
    if sys.argv[1:2] == ["target"]:
        target(sys.argv[2], int(sys.argv[3]))
    print("| target | monitor | CPU, % of one | own memory, MiB | used, MiB | true |\n| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="lowtide-scale.") as folder:
        for case in sys.argv[1:] or USUAL.split():
            kind, size = case.split(":")
            print(measured(kind, int(size), folder), flush=True)


if __name__ == "__main__":
    main()
