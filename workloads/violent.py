#!/usr/bin/env python3
"""Changes its address space without pause for so many seconds (8): mappings come, grow, move and go in several
processes at once, some of which end as they were born. What monitors of memory must survive."""

import mmap
import os
import random
import sys
import threading
import time

MIB = 1 << 20


def churn(end: float, seed: int) -> None:
    """Maps, touches, resizes and unmaps at random."""
    rng = random.Random(seed)
    held: list[mmap.mmap] = []
    while time.monotonic() < end:
        if len(held) < 20 and rng.random() < 0.55:
            area = mmap.mmap(-1, rng.randrange(1, 64) * 65536)
            for at in range(0, len(area), 4096):
                area[at] = 1
            held.append(area)
        elif held:
            area = held.pop(rng.randrange(len(held)))
            if rng.random() < 0.4:
                area.resize(rng.randrange(1, 64) * 65536)
                held.append(area)
            else:
                area.close()


def main() -> None:
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 8)
    for seed in range(2):
        if os.fork() == 0:
            churn(end, seed)
            os._exit(0)
    thread = threading.Thread(target=churn, args=(end, 99))
    thread.start()
    while time.monotonic() < end:
        if os.fork() == 0:
            mmap.mmap(-1, 4 * MIB).write(b"x" * MIB)
            os._exit(0)
        os.wait()
        time.sleep(0.02)
    thread.join()


main()
