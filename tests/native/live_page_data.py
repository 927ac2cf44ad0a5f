#!/usr/bin/env python3
"""Data of an agent that has been at work for an hour, made from what a real agent says of an idle workload: OVERVIEW
DETAIL FOLDER COUNT. What this machine cannot measure (idle ages take cgroups of version 2 and the multi-generational LRU)
is filled in, in the same form; a key that the real one does not have is refused."""

import json
import math
import sys

overview, detail = (json.load(open(path)) for path in sys.argv[1:3])
folder, count = sys.argv[3], int(sys.argv[4])
MIB = 1 << 20


def like(real, **values):
    unknown = set(values) - set(real)
    assert not unknown, f"the agent does not say {unknown}"
    return {**real, **values}


now, samples = 5400.0, 60
times = [now - 60 * (samples - 1 - at) for at in range(samples)]
anon = [(900 - 300 * min(1, at / 20) + 40 * math.sin(at / 3)) * MIB for at in range(samples)]
file = [(260 + 20 * math.sin(at / 5)) * MIB for at in range(samples)]
swapped = [300 * MIB * min(1, at / 20) for at in range(samples)]


def used(part, total):
    return [None if at % 9 == 4 else part * total[at] * (1 + 0.15 * math.sin(at / 2)) for at in range(samples)]


windows = [{"window_s": window, "anon_bytes": used(part, anon), "file_bytes": used(0.6 * part, file)}
           for window, part in ((10, 0.3), (30, 0.5), (60, 0.6), (120, 0.66))]
points = [{"age_s": age, "kept_bytes": (700 * part + 168 * part) * MIB, "anon_cold_bytes": 700 * (1 - part) * MIB,
           "file_cold_bytes": 280 * (1 - 0.6 * part) * MIB, "anon_back_bytes_per_s": back * MIB,
           "file_back_bytes_per_s": 0.2 * back * MIB, "slowdown_percent": 0.77 * back, "slowdown_low_percent": 0.36 * back,
           "slowdown_high_percent": 1.3 * back} for age, part, back in ((10, 0.3, 2.4), (30, 0.5, 0.7), (60, 0.6, 0.2), (120, 0.66, 0.05))]
curve = {"span_s": 3540, "refault_swap_s": 1e-5, "refault_disk_s": 1e-4, "total_anon_bytes": 700 * MIB,
         "total_file_bytes": 280 * MIB, "points": points}
action = {"t_s": now - 30, "what": "reclaim", "asked_anon_bytes": 64 * MIB, "asked_file_bytes": 8 * MIB, "anon_bytes": 61 * MIB,
          "file_bytes": 8 * MIB, "took_s": 0.31, "reason": "idle for 30 s <b>or more</b>", "stopped": "tasks of it stalled for 34 ms"}
row = like(detail["workload"], id="1000", name="/system.slice/database.service", policy="auto", monitor="damon", memory_bytes=860 * MIB,
           anon_bytes=600 * MIB, file_bytes=260 * MIB, working_set_bytes=410 * MIB, working_set_window_s=120,
           cold_bytes=450 * MIB, swapped_bytes=300 * MIB, kept_bytes=90 * MIB, saved_net_bytes=210 * MIB,
           pressure_percent=0.4, brakes=[{"policy": "auto", "brake": "slowdown", "all": False}], last_action=action)
rows = [row] + [like(row, id=str(2000 + at), name=f"/batch.slice/job-{at:04}", memory_bytes=(at % 97) * MIB, cold_bytes=None if at % 3 else at * MIB,
                     brakes=[]) for at in range(count - 1)]
if count > 1:
    rows[1]["name"] = "/kubepods.slice/kubepods-burstable.slice/" + "pod0b3a1f2e" * 20
    rows[2]["name"] = "/system.slice/<img src=x onerror=alert(1)>\u202e\u001b.service"
agent = like(overview["agent"], now_s=now, rss_bytes=7 * MIB)


def put(name, value):
    with open(f"{folder}/{name}", "w") as out:
        json.dump(value, out)


put("many.json", like(overview, agent=agent, workloads=rows))
put("gone.json", like(overview, agent=agent, workloads=rows[1:9]))
put("empty.json", like(overview, agent=agent, workloads=[]))
put("stopped.json", like(overview, agent=like(agent, stopped=True, stop_file="/run/stop<i>"), workloads=rows[:1]))
put("one.json", like(detail, now_s=now, workload=row, curve=curve, curve_missing=None, actions=[action],
                     ages=like(detail["ages"], t_s=times, anon_bytes=anon, file_bytes=file, swapped_bytes=swapped, used=windows)))
