# Resident memory of a process and its children, once a second: python3 psutil_poll.py PID SECONDS
import json
import sys
import time

import psutil


def resident(process):
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            pass
    return total


process = psutil.Process(int(sys.argv[1]))
end = time.monotonic() + float(sys.argv[2])
samples = []
while time.monotonic() < end:
    try:
        samples.append(resident(process))
    except psutil.NoSuchProcess:
        break
    time.sleep(1)
print(json.dumps({"samples": len(samples), "peak_bytes": max(samples, default=None)}))
