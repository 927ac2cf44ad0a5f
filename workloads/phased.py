"""A program whose memory use is known: it touches all of its memory once, then part of it over and over.

phased.py SIZE HOT SECONDS [--doubles S] [--grows] [--workers N]   sizes in MiB, times in seconds

--doubles S   in the last S seconds all of the memory is used
--grows       memory is touched for the first time until the end, at an even pace
--workers N   so many forked processes share the memory, and each uses the same part of it
"""

import argparse
import mmap
import os
import time

MIB, PAGE = 1 << 20, 4096


def touch(memory, size, offset=0):
    for at in range(offset, size, PAGE):
        memory[at] = 1


def read(memory, size):
    for at in range(0, size, PAGE):
        memory[at]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int)
    parser.add_argument("hot", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--doubles", type=float, default=0)
    parser.add_argument("--grows", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    size, hot = args.size * MIB, args.hot * MIB
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = time.monotonic()
    if args.grows:
        reached = 0
        while reached < size:
            now = min(size, int(size * (time.monotonic() - begin) / args.seconds) // PAGE * PAGE)
            touch(memory, now, reached)
            reached = now
            time.sleep(0.1)
        return
    touch(memory, size)
    for _ in range(args.workers):
        if os.fork() == 0:
            break
    else:
        for _ in range(args.workers):
            os.wait()
        if args.workers:
            return
    end = begin + args.seconds
    while time.monotonic() < end:
        read(memory, size if end - time.monotonic() < args.doubles else hot)
        time.sleep(0.1)


main()
