"""Stands in for the service manager, which configures what systemd-oomd watches: `oomd.py CGROUP`, a path below the mount.

It speaks as much of varlink (https://varlink.org) as that needs: systemd-oomd subscribes once, and is allowed to kill
below that cgroup, for pressure and for full swap, with the limits that it has by itself.
"""

import json
import os
import socket
import sys

path = "/run/systemd/io.system.ManagedOOM"
os.makedirs(os.path.dirname(path), exist_ok=True)
if os.path.exists(path):
    os.unlink(path)
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.bind(path)
server.listen()
watched = [
    {"mode": "kill", "path": sys.argv[1], "property": name}
    for name in ("ManagedOOMMemoryPressure", "ManagedOOMSwap")
]
while True:
    peer, _ = server.accept()
    asked = b""
    while not asked.endswith(b"\0"):
        piece = peer.recv(4096)
        if not piece:
            break
        asked += piece
    else:
        print("systemd-oomd asks:", asked[:-1].decode(), flush=True)
        peer.sendall(json.dumps({"parameters": {"cgroups": watched}, "continues": True}).encode() + b"\0")
        # The subscription lasts as long as the connection.
        while peer.recv(4096):
            pass
