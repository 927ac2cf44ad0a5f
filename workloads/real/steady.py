"""Programs that work for a given time and say how much they did: `steady.py NAME SECONDS [RATE]`.

They work as fast as they can. redis takes a rate in requests a second, as what it uses within a time depends on that.

What a run left alone predicts is compared with runs from which memory is taken, and these must be long beside the ages
that are compared. A server ends with its client.
"""

import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time


def until(path):
    """Connects to a server's socket as soon as it is there."""
    for _ in range(600):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client
        except OSError:
            client.close()
            time.sleep(0.1)
    sys.exit("the server did not come up")


def redis(end, folder, rate=None):
    """40,000 keys of 4 KiB; one in ten is read, and another one now and then."""
    path = folder + "/s"
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        client = until(path)
        answers = client.makefile("rb")

        def ask(*words):
            client.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

        def skip():
            line = answers.readline()
            if line[:1] == b"$":
                answers.read(int(line[1:]) + 2)

        for first in range(0, 40_000, 500):
            keys = range(first, first + 500)
            ask(b"MSET", *(word for key in keys for word in (b"key:%d" % key, os.urandom(2048) * 2)))
            skip()
        draw, done, due = random.Random(1), 0, time.monotonic()
        while time.monotonic() < end:
            if rate:
                # Requests that could not be sent in time are not made up for.
                due = max(due + 50 / rate, time.monotonic())
                time.sleep(max(0, due - time.monotonic()))
            for _ in range(50):
                ask(b"GET", b"key:%d" % draw.randrange(4_000 if draw.random() < 0.99 else 40_000))
                done += 1
            for _ in range(50):
                skip()
        server.terminate()
    return done


def memcached(end, folder):
    """A cache of 30,000 values of 4 KiB; what is popular changes slowly."""
    path = folder + "/s"
    with subprocess.Popen(["memcached", "-u", "root", "-s", path, "-m", "200", "-t", "1"]) as server:
        client = until(path)
        answers = client.makefile("rb", buffering=1 << 16)
        for first in range(0, 30_000, 500):
            values = (b"set k%d 0 0 4096 noreply\r\n%s\r\n" % (key, os.urandom(2048) * 2) for key in range(first, first + 500))
            client.sendall(b"".join(values))
        draw, done, begun = random.Random(1), 0, time.monotonic()
        while time.monotonic() < end:
            centre = 100 * (time.monotonic() - begun)
            keys = (int(centre + draw.gauss(0, 1_000)) % 30_000 for _ in range(50))
            client.sendall(b"get " + b" ".join(b"k%d" % key for key in keys) + b"\r\n")
            while (line := answers.readline()) != b"END\r\n":
                done += line.startswith(b"VALUE")
                answers.readline()
        server.terminate()
    return done


def sqlite(end, _):
    """A table of some 100 MB in memory; customers come back after ever longer times."""
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, body BLOB)")
    table.executemany("INSERT INTO item VALUES (?, ?)", ((item, os.urandom(2048) * 2) for item in range(30_000)))
    draw, done = random.Random(1), 0
    while time.monotonic() < end:
        for _ in range(20):
            first = int(30_000 * draw.random() ** 6)
            done += len(table.execute("SELECT body FROM item WHERE id BETWEEN ? AND ?", (first, first + 9)).fetchall())
    return done


def zstd(end, _):
    """A compressor that searches for matches in the last 128 MiB of an endless text."""
    words = [random.Random(word).randbytes(random.Random(word).randrange(40, 4000)) for word in range(3000)]
    draw, done = random.Random(1), 0
    with subprocess.Popen(
        ["zstd", "-q", "-1", "--long=27", "-T1", "-c"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as program:
        while time.monotonic() < end:
            done += program.stdin.write(b"".join(draw.choices(words, k=100)))
        program.stdin.close()
    return done


def graph(end, _):
    """PageRank by power iteration on a random graph of 1 million nodes and 8 million edges, beside 256 MB of other arrays."""
    # The others do not need it.
    import numpy
    from scipy.sparse import csr_matrix

    nodes, edges, done = 1_000_000, 8_000_000, 0
    draw = numpy.random.default_rng(1)
    unused = draw.random(32_000_000)
    source = draw.integers(0, nodes, edges, dtype=numpy.int32)
    target = (nodes * draw.random(edges) ** 3).astype(numpy.int32)
    degree = numpy.bincount(source, minlength=nodes)
    links = csr_matrix((1.0 / degree[source], (target, source)), shape=(nodes, nodes))
    rank = numpy.full(nodes, 1.0 / nodes)
    while time.monotonic() < end:
        rank = 0.15 / nodes + 0.85 * links.dot(rank)
        done += 1
    return done + (unused[0] > 1)


if __name__ == "__main__":
    programs = {"redis": redis, "memcached": memcached, "sqlite": sqlite, "zstd": zstd, "graph": graph}
    rates = [float(word) for word in sys.argv[3:]]
    if len(sys.argv) not in (3, 4 if sys.argv[1:2] == ["redis"] else 3) or sys.argv[1] not in programs:
        sys.exit(f"steady.py NAME SECONDS; redis SECONDS [RATE]; there are {', '.join(programs)}")
    with tempfile.TemporaryDirectory() as own:
        print("done", programs[sys.argv[1]](time.monotonic() + float(sys.argv[2]), own, *rates))
