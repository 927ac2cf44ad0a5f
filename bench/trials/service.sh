#!/usr/bin/env bash
# An interactive service beside a batch program that takes all memory it can get: how long requests wait alone, together, and
# together under the guard, for which the service has the higher priority; and what the batch program gets done. In the
# configuration `limited` the batch program has a limit, so that there is enough for the service.
#
# Environment: SECONDS_EACH (40), MIB (96: of each), SHORT (35: percent of what both need that there is not), CONFIGS
# (alone none limited guard), BATCH (a fifth of MIB: the limit), CALIBRATE, TRIAL_LOGS (1: the guard's log), LOWTIDE, PATTERN.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib.sh
. "$trials/../../scripts/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
with_swap 1G "$trials/service.sh" "$@"
ended=0
trap 'ended=$?; end_groups; (exit "$ended"); finish_test' EXIT
find_redis_server "$tmp" && PATH=$tmp:$PATH || { skip service redis-server; exit 0; }
make_groups || exit 1
seconds=${SECONDS_EACH:-40} mib=${MIB:-96}
[ -z "${CALIBRATE:-}" ] || "$LOWTIDE" doctor --calibrate --with-zram >/dev/null 2>&1
cat >"$tmp/agent.toml" <<END
every = "1s"
state_file = ""
[[workload]]
cgroup = "$group_path/service"
policy = "guard"
priority = 10
[[workload]]
cgroup = "$group_path/*"
policy = "guard"
END
pattern_of "$tmp/batch.toml" "${mib}M" "${mib}M" 100000 '"max"'
limit=memory.max
! have "cgroup v1" || limit=memory.limit_in_bytes
unlimited=$(cat "$groups/$limit")

# batch: starts it, for as long as the service is asked.
batch() { in_group batch "$PATTERN" "$tmp/batch.toml" --seconds "$seconds" >"$tmp/batch.out"; }
printf '| configuration | p50, ms | p99, ms | p99.9, ms | batch, million touches |\n| --- | ---: | ---: | ---: | ---: |\n'
row() { printf '| %s | %s | %s | %s | %s |\n' "$@"; }
touches() { sed -n 's/.*"touches":\([0-9]*\).*/\1/p' "$tmp/batch.out" | awk '{ printf "%.2f", $1 / 1e6 }'; }
mkdir -p "$groups/service" "$groups/batch"
for config in ${CONFIGS:-alone none limited guard}; do
  echo "$unlimited" >"$groups/$limit"
  echo "$unlimited" >"$groups/batch/$limit"
  [ "$config" != limited ] || echo "${BATCH:-$((mib / 5))M}" >"$groups/batch/$limit"
  if [ "$config" = guard ]; then
    start_agent "$tmp/agent.toml" || { skip guard "an agent that works here: $(tail -n 1 "$tmp/agent.log")"; continue; }
  fi
  start python3 "$trials/service.py" "$groups/service/cgroup.procs" "$seconds" "$mib" >"$tmp/service.out" 2>"$tmp/service.log"
  service=$started
  wait_for 120 grep -qs filled "$tmp/service.log"
  if [ "$config" != alone ]; then
    echo $((2 * mib * (100 - ${SHORT:-35}) / 100 << 20)) >"$groups/$limit"
    batch
  fi
  wait "$service" || { cat "$tmp/service.log" >&2; exit 1; }
  if [ "$config" != alone ]; then wait_for "$((2 * seconds))" gone "$started"; fi
  eval "$(cat "$tmp/service.out")"
  # shellcheck disable=SC2154  # printed by the service
  row "$config" "$p50" "$p99" "$p999" "$([ "$config" = alone ] || touches)"
  if [ "$config" = guard ]; then
    stop "$agent"
    echo "$(actions_of "$tmp/agent.log")"
    [ -z "${TRIAL_LOGS:-}" ] || cat "$tmp/agent.log"
  fi
done
# What it does alone.
echo "$unlimited" >"$groups/$limit"
echo "$unlimited" >"$groups/batch/$limit"
batch
wait_for "$((2 * seconds))" gone "$started"
row "batch alone" - - - "$(touches)"
