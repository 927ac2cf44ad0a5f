"""An interactive service: `service.py PROCS SECONDS MIB`. A redis in the cgroup whose cgroup.procs file PROCS is holds MIB of
values of 64 KiB; one client asks for one of them, at random, 100 times a second. Prints latencies in milliseconds.

Latencies count from when a request was due, so that those that wait for one before them count, too."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time

RATE, VALUE = 100.0, 65536


def main(procs, seconds, mib):
    with tempfile.TemporaryDirectory() as folder:
        path, keys = folder + "/s", mib * (1 << 20) // VALUE
        redis = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
        join = ["sh", "-c", 'echo 0 >"$1" && shift && exec "$@"', "sh", procs]
        with subprocess.Popen([*join, *redis], stdout=subprocess.DEVNULL) as server:
            try:
                latencies = ask(path, keys, seconds)
            finally:
                server.terminate()
    latencies.sort()
    of = [latencies[min(len(latencies) - 1, int(share * len(latencies)))] for share in (0.5, 0.99, 0.999)]
    print("p50={:.2f} p99={:.2f} p999={:.2f}".format(*(1000 * latency for latency in of)))


def ask(path, keys, seconds):
    client = socket.socket(socket.AF_UNIX)
    for attempt in range(600):
        try:
            client.connect(path)
            break
        except OSError:
            time.sleep(0.1)
    answers = client.makefile("rb")

    def request(*words):
        client.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        line = answers.readline()
        return answers.read(int(line[1:]) + 2) if line[:1] == b"$" else line

    for key in range(keys):
        # A third is random, so that it compresses as memory does.
        request(b"SET", b"key:%d" % key, os.urandom(VALUE // 3) + bytes(VALUE - VALUE // 3))
    print("filled", file=sys.stderr, flush=True)
    draw, begun, latencies = random.Random(1), time.monotonic(), []
    for number in range(int(RATE * seconds)):
        due = begun + number / RATE
        time.sleep(max(0.0, due - time.monotonic()))
        if len(request(b"GET", b"key:%d" % draw.randrange(keys))) != VALUE + 2:
            sys.exit("a value was not there")
        latencies.append(time.monotonic() - due)
    return latencies


main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
