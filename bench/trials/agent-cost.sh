#!/usr/bin/env bash
# What the agent costs on a machine of many cgroups: CPU time a minute and memory, with policy auto for each.
# `agent-cost.sh [COUNT]...` (100 5000). Each cgroup holds a little memory of its own and no process; on version 1, where
# the agent measures processes, it has one that sleeps.
#
# Environment: SECONDS_EACH (120), HELD_KIB (128: what each holds), LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
with_swap 512M "$trials/agent-cost.sh" "$@"
[ $# -gt 0 ] || set -- 100 5000
version=1
! have "cgroup v2" || version=2
work=$(mktemp -d -p /dev/shm lowtide-trial.XXXXXX)
# A cgroup directory cannot be removed before the pages charged to it are gone.
ended=0
trap 'ended=$?; rm -rf -- "$work"; end_groups; (exit "$ended"); finish_test' EXIT
make_groups || exit 1
cat >"$tmp/agent.toml" <<END
stop_file = "$tmp/stop"
state_file = ""
[[workload]]
cgroup = "$group_path/*"
END

printf '| cgroups | CPU, %% of one | user | system | most memory, MiB |\n| ---: | ---: | ---: | ---: | ---: |\n'
made=0
for count; do
  python3 - "$version" "$groups" "$work" "$made" "$count" "${HELD_KIB:-128}" <<'END'
import os, subprocess, sys
groups, work = sys.argv[2:4]
version, made, count, kib = map(int, [sys.argv[1], *sys.argv[4:]])
held = b"x" * (kib << 10)

def join(group):
    with open(f"{group}/cgroup.procs", "w") as procs:
        procs.write("0")

for number in range(made, count):
    group = f"{groups}/job-{number:04}"
    os.mkdir(group)
    if version == 1:
        subprocess.Popen(["sleep", "infinity"], preexec_fn=lambda: join(group))
    else:
        join(group)
        # Shared memory is charged to whoever writes it first.
        with open(f"{work}/{number}", "wb") as file:
            file.write(held)
if version == 2:
    join("/sys/fs/cgroup")
END
  made=$count
  start_agent "$tmp/agent.toml" || { skip agent-cost "an agent that works here: $(tail -n 1 "$tmp/agent.log")"; exit 0; }
  # What it does once is not what it costs.
  sleep 40
  ticks() { awk '{ sub(/.*\) /, ""); print $12, $13 }' "/proc/$agent/stat"; }
  read -r user system < <(ticks)
  begin=$(now)
  sleep "${SECONDS_EACH:-120}"
  read -r user_then system_then < <(ticks)
  peak=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$agent/status")
  awk -v n="$count" -v a="$begin" -v b="$(now)" -v u=$((user_then - user)) -v s=$((system_then - system)) -v kib="$peak" \
    -v hz="$(getconf CLK_TCK)" 'BEGIN { t = (b - a) * hz / 100
      printf "| %d | %.2f | %.2f | %.2f | %.1f |\n", n, (u + s) / t, u / t, s / t, kib / 1024 }'
  stop "$agent"
done
