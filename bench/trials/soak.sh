#!/usr/bin/env bash
# Days of the agent beside programs that come and go, in a guest whose clock skips time in which nobody computes: does what
# the agent holds stay flat? `soak.sh [DAYS]` (7).
#
# Each hour three programs start in cgroups of their own, use 32 MiB and end within the hour; the page is read, a hint given,
# and once a day the wall clock is stepped by an hour, forth and back. A row for each day: the most of 24 readings.
#
# Environment: EVERY (60s: the agent's turns), SECONDS_EACH (3600: of an "hour"), MONITOR (auto, which is DAMON; as it samples
# pages each second, a day of it takes far longer than one by mglru, which takes six minutes), LOWTIDE, PATTERN.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ -n "${IN_GUEST:-}" ] || { skip soak "a guest (scripts/bench.sh guest soak): it steps the clock"; exit 0; }
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
with_swap 512M "$trials/soak.sh" "$@"
ended=0
trap 'ended=$?; end_groups; (exit "$ended"); finish_test' EXIT
make_groups || exit 1
hour=${SECONDS_EACH:-3600}
cat >"$tmp/agent.toml" <<END
every = "${EVERY:-60s}"
monitor = "${MONITOR:-auto}"
ages = ["10s", "1m"]
stop_file = "$tmp/stop"
state_file = "$tmp/state"
listen = "unix:$tmp/page"
[[workload]]
cgroup = "$group_path/*"
END
# In use for a while, then idle: who computes has the clock of the guest go slower than the host's.
for number in 1 2 3; do
  pattern_of "$tmp/$number.toml" 32M $((number * 8))M $((hour / 60 + 1)) 0.2
  printf '[[phase]]\nseconds = %d\n' $((hour * number / 4)) >>"$tmp/$number.toml"
done
start_agent "$tmp/agent.toml" || { skip soak "an agent that works here: $(tail -n 1 "$tmp/agent.log")"; exit 0; }

# RSS and swap in KiB, descriptors, tasks, files: one line.
reading() {
  awk '$1 == "VmRSS:" || $1 == "VmSwap:" { kib += $2 } END { printf "%d ", kib }' "/proc/$agent/status"
  printf '%d %d %d\n' "$(find "/proc/$agent/fd" -mindepth 1 | wc -l)" "$(find "/proc/$agent/task" -mindepth 1 -maxdepth 1 | wc -l)" \
    "$(find /run/lowtide "$tmp" -maxdepth 2 -type f ! -path "*/lowtide-trial*" 2>/dev/null | wc -l)"
}

printf '| day | memory, MiB | descriptors | tasks | files | reclaims |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n'
for ((day = 1; day <= ${1:-7}; day++)); do
  : >"$tmp/readings"
  before=$(grep -c '^reclaim' "$tmp/agent.log")
  for of_day in {0..23}; do
    jobs=()
    for number in 1 2 3; do
      in_group "job-$day-$of_day-$number" "$PATTERN" "$tmp/$number.toml" >/dev/null
      jobs+=("$started")
    done
    [ "$of_day" -ne 12 ] || date -s "@$(($(date +%s) + 3600))" >/dev/null
    [ "$of_day" -ne 18 ] || date -s "@$(($(date +%s) - 3600))" >/dev/null
    "$LOWTIDE" top --once --socket "$tmp/page" >/dev/null || { echo "top failed" >&2; exit 1; }
    sleep "$hour"
    for pid in "${jobs[@]}"; do stop "$pid"; done
    all_started=("$agent")
    wait_for 20 rmdir "$groups"/job-*
    ! gone "$agent" || { tail -n 5 "$tmp/agent.log" >&2; exit 1; }
    reading >>"$tmp/readings"
  done
  awk -v day="$day" -v reclaims=$(($(grep -c '^reclaim' "$tmp/agent.log") - before)) '
    { for (i = 1; i <= 4; i++) if ($i > most[i]) most[i] = $i }
    END { printf "| %d | %.1f | %d | %d | %d | %d |\n", day, most[1] / 1024, most[2], most[3], most[4], reclaims }' "$tmp/readings"
done
stop "$agent"
