"""Fills a memcached and reads a tenth of it, at most one request under way: `memcached.py SOCKET READS`."""

import random
import socket
import sys

KEYS, VALUE = 400_000, b"v" * 1024

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
answers = server.makefile("rb", buffering=1 << 16)
for first in range(0, KEYS, 500):
    keys = range(first, min(first + 500, KEYS))
    server.sendall(b"".join(b"set k%d 0 0 %d noreply\r\n%s\r\n" % (key, len(VALUE), VALUE) for key in keys))
draw = random.Random(1)
hits = 0
for _ in range(int(sys.argv[2]) // 50):
    server.sendall(b"get " + b" ".join(b"k%d" % draw.randrange(KEYS // 10) for _ in range(50)) + b"\r\n")
    while (line := answers.readline()) != b"END\r\n":
        if not line:
            sys.exit("the server has ended")
        hits += line.startswith(b"VALUE")
        answers.readline()
print("hits:", hits)
