"""A program whose memory use is known: it touches all of its memory once, then part of it over and over.

phased.py SIZE HOT SECONDS [--start S] [--doubles S] [--grows] [--workers N]   sizes in MiB, times in seconds

--start S     the first touches are spread over so many seconds, before the rest
--doubles S   in the last S seconds all of the memory is used
--grows       memory is touched for the first time until the end, at an even pace
--workers N   so many forked processes share the memory, and each uses the same part of it
--lingers S   the memory is given back so long before the end
"""

import argparse
import mmap
import os
import time

MIB, PAGE = 1 << 20, 4096


def touch(memory, size, seconds=0):
    """Touches all of it at an even pace."""
    begin, reached = time.monotonic(), 0
    while reached < size:
        passed = time.monotonic() - begin
        now = size if passed >= seconds else int(size * passed / seconds) // PAGE * PAGE
        for at in range(reached, now, PAGE):
            memory[at] = 1
        reached = now
        if reached < size:
            time.sleep(0.1)


def read(memory, size):
    for at in range(0, size, PAGE):
        memory[at]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int)
    parser.add_argument("hot", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--start", type=float, default=0)
    parser.add_argument("--doubles", type=float, default=0)
    parser.add_argument("--grows", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--lingers", type=float, default=0)
    args = parser.parse_args()
    size, hot = args.size * MIB, args.hot * MIB
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if args.grows:
        touch(memory, size, args.seconds)
        return
    touch(memory, size, args.start)
    for _ in range(args.workers):
        if os.fork() == 0:
            break
    else:
        for _ in range(args.workers):
            os.wait()
        if args.workers:
            return
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        read(memory, size if end - time.monotonic() < args.doubles else hot)
        time.sleep(0.1)
    memory.close()
    time.sleep(args.lingers)


main()
