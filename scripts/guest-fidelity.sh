#!/usr/bin/env bash
# In a guest: each program alone, monitored, and with an agent that evicts what was idle for so long; then the prediction of
# the monitored run's curve beside the results of the others. `guest-fidelity.sh SECONDS PROGRAM...`
# Programs are patterns by their file's name, or of steady.py.

set -euo pipefail
export LC_ALL=C
seconds=$1
shift
work=/root/fidelity
mkdir "$work"
cd "$work"
modprobe zram
device=$(cat /sys/class/zram-control/hot_add)
echo 2G >"/sys/block/zram$device/disksize"
mkswap "/dev/zram$device" >/dev/null
swapon "/dev/zram$device"
echo y >/sys/kernel/mm/lru_gen/enabled
# A huge page has one accessed bit, so idle parts of it are not known.
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
lowtide doctor --calibrate >/dev/null

# agent AGE: evicts anonymous memory that was idle for so long, whatever that costs.
agent() {
  cat >"agent-$1.toml" <<END
every = "1s"
ages = ["$1"]
[[workload]]
cgroup = "lowtide-*"
policy = "bare"
[policy.bare.age]
anon = "$1"
every = "1s"
[policy.bare.age.brakes]
pressure = "100%"
slowdown = "100%"
kept = "100%"
cpu = "100%"
END
  lowtide agent --config "agent-$1.toml" 2>"agent-$1.log" &
  agent=$!
}

# run PROGRAM CONFIG MONITOR: one record, and the work that was done.
run() {
  local command=(pattern "/patterns/$1.toml" --seconds "$seconds")
  [ -e "/patterns/$1.toml" ] || command=(python3 /steady.py "$1" "$seconds")
  lowtide run --out "$1-$2" --monitor "$3" --max-overhead 100% -- "${command[@]}" >"$1-$2.out" 2>"$1-$2.err"
  sed -n 's/^done //p' "$1-$2.out" >"$1-$2/done"
}

for program in "$@"; do
  [ -e "/patterns/$program.toml" ] || run "$program" orig none
  run "$program" watch damon
  for age in 5s 10s; do
    agent "$age"
    run "$program" "age-$age" none
    kill "$agent"
    wait "$agent"
  done
  # After each program: if the guest ends early, only later programs are missing.
  lowtide-bench fidelity --agent "$work"
done
