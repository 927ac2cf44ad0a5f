"""Stores at a fixed rate, as if people used them: `paced.py NAME SECONDS WHERE`. WHERE is a server's socket, or a file or folder.

What could not be asked in time is asked late, not left out, so that a store that is too slow takes longer.
"""

import random
import socket
import sqlite3
import sys
import time

KEYS, BATCH = 300_000, 100


def pace(seconds, rate, ask):
    """Calls `ask` so often a second, and prints how long the calls took."""
    took, due = [], time.monotonic()
    for _ in range(int(seconds * rate)):
        due += 1 / rate
        time.sleep(max(0, due - time.monotonic()))
        begun = time.monotonic()
        ask()
        took.append(1000 * (time.monotonic() - begun))
    took.sort()
    print(f"calls: {len(took)}, mean: {sum(took) / len(took):.3f} ms, 99 % within: {took[len(took) * 99 // 100]:.3f} ms")


def values(draw, keys=KEYS):
    """Keys and values of 1 KiB. These compress to a half, as memory of servers does."""
    return ((key, draw.randbytes(512) * 2) for key in range(keys))


def batches(pairs):
    pairs = iter(pairs)
    while batch := [pair for _, pair in zip(range(BATCH), pairs)]:
        yield batch


def connected(where):
    server = socket.socket(socket.AF_UNIX)
    server.connect(where)
    return server, server.makefile("rb", buffering=1 << 16)


def redis(seconds, where, used=KEYS // 15):
    """Reads 2,000 keys a second, of the first fifteenth of them."""
    server, answers = connected(where)
    draw = random.Random(1)

    def send(*words):
        server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def read():
        send(b"MGET", *(b"key:%d" % draw.randrange(used) for _ in range(BATCH)))
        for _ in range(int(answers.readline()[1:])):
            answers.read(int(answers.readline()[1:]) + 2)

    for batch in batches(values(draw)):
        send(b"MSET", *(word for key, value in batch for word in (b"key:%d" % key, value)))
        answers.readline()
    pace(seconds, 20, read)


def redis_hot(seconds, where):
    """The same of a hundred-and-fiftieth: a cache that nobody sized."""
    redis(seconds, where, KEYS // 150)


def memcached(seconds, where):
    """Reads 2,000 values a second near one that moves on slowly, so that what is popular changes."""
    server, answers = connected(where)
    draw, begun = random.Random(1), time.monotonic()

    def read():
        centre = 200 * (time.monotonic() - begun)
        keys = (int(centre + draw.gauss(0, KEYS / 50)) % KEYS for _ in range(BATCH))
        server.sendall(b"get " + b" ".join(b"k%d" % key for key in keys) + b"\r\n")
        while answers.readline() != b"END\r\n":
            answers.readline()

    for batch in batches(values(draw)):
        server.sendall(b"".join(b"set k%d 0 0 1024 noreply\r\n%s\r\n" % pair for pair in batch))
    pace(seconds, 20, read)


def sqlite(seconds, where):
    """A scan of everything, then 40 queries a second by an index, of a twentieth of the groups; each reads some 200 rows."""
    database = sqlite3.connect(f"file:{where}?mode=ro", uri=True)
    database.execute("PRAGMA cache_size = -400000")
    database.execute("SELECT count(*), sum(length(body)) FROM item").fetchall()
    draw = random.Random(1)
    query = "SELECT sum(length(body)) FROM item WHERE grp = ?"
    pace(seconds, 40, lambda: database.execute(query, (draw.randrange(500),)).fetchall())


def leveldb(seconds, where):
    """100,000 values on disk with a cache of 32 MiB: 1,000 reads a second, mostly of a tenth, and 100 changes."""
    import plyvel  # The others do not need it.

    keys, draw = KEYS // 3, random.Random(1)
    store = plyvel.DB(where, create_if_missing=True, lru_cache_size=32 << 20, write_buffer_size=16 << 20)
    for batch in batches(values(draw, keys)):
        with store.write_batch() as changes:
            for key, value in batch:
                changes.put(b"%d" % key, value)

    def work():
        for _ in range(50):
            store.get(b"%d" % draw.randrange(keys // 10 if draw.random() < 0.95 else keys))
        for _ in range(5):
            store.put(b"%d" % draw.randrange(keys), draw.randbytes(512) * 2)

    pace(seconds, 20, work)
    store.close()


if __name__ == "__main__":
    programs = {"redis": redis, "redis-hot": redis_hot, "memcached": memcached, "sqlite": sqlite, "leveldb": leveldb}
    if len(sys.argv) != 4 or sys.argv[1] not in programs:
        sys.exit(f"paced.py NAME SECONDS WHERE; there are {', '.join(programs)}")
    programs[sys.argv[1]](float(sys.argv[2]), sys.argv[3])
