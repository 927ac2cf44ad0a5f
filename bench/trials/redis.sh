#!/usr/bin/env bash
# A redis that fills up as it serves: `redis.sh PROCS SECONDS KEYS`. KEYS values of 1 KiB come in at a steady rate over the
# given time; clients read a twentieth of them without pause, and now and then some of all. Only the server is in the
# cgroup whose cgroup.procs file PROCS is. Prints a line of figures. Private socket, no port, no data on disk.

set -euo pipefail
export LC_ALL=C
# shellcheck source=scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

procs=$1 seconds=$2 keys=$3
hot=$((keys / 20))
dir=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-redis.XXXXXX")
socket=$dir/redis.sock
server=
cleanup() {
  trap - EXIT INT TERM HUP
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf -- "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

find_redis_server "$dir" || { echo "redis-server is missing: apt-get install redis-server" >&2; exit 1; }
# shellcheck disable=SC2016  # expanded by the inner shell
sh -c 'echo 0 >"$1" && shift && exec "$@"' sh "$procs" "$dir/redis-server" --port 0 --unixsocket "$socket" --save '' \
  --appendonly no --dir "$dir" --logfile "$dir/log" &
server=$!
redis() { redis-cli -s "$socket" "$@"; }
for _ in $(seq 200); do
  redis ping >/dev/null 2>&1 && break
  kill -0 "$server" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
  sleep 0.1
done

# Names as redis-benchmark makes them: twelve digits. A third of a value is random, so that it compresses as memory does.
load='math.randomseed(ARGV[1])
local some = {}
for at = 1, 8192 do some[at] = string.char(math.random(0, 255)) end
some = table.concat(some)
local rest = string.rep("x", 684)
for key = ARGV[1], ARGV[2] - 1 do
  local from = math.random(1, 7853)
  redis.call("SET", string.format("key:%012d", key), string.sub(some, from, from + 339) .. rest)
end'
# fill UP-TO: in steps, so that no script of the server runs for long.
loaded=0
fill() {
  local to
  while [ "$loaded" -lt "$1" ]; do
    to=$((loaded + 1000 < $1 ? loaded + 1000 : $1))
    redis eval "$load" 0 "$loaded" "$to" >/dev/null
    loaded=$to
  done
}
# burst KIND READS KEYS: reads among the first so many keys.
burst() {
  redis-benchmark -s "$socket" -t get -n "$2" -r "$3" -c 4 --csv 2>/dev/null | sed -n "s/^\"GET\",/$1 $2 /p" | tr -d '"' |
    tr ',' ' ' >>"$dir/bursts"
}

fill "$hot"
started=$SECONDS
while [ $((SECONDS - started)) -lt "$seconds" ]; do
  # All are there after nine tenths of the time, whatever the machine's speed.
  due=$((hot + (keys - hot) * (SECONDS - started + 1) * 10 / (seconds * 9)))
  fill "$((due < keys ? due : keys))"
  burst hot "${REDIS_BURST:-20000}" "$hot"
  burst cold 100 "$loaded"
done
redis info stats | tr -d '\r' | grep -qx keyspace_misses:0 || { echo "keys were not there" >&2; exit 1; }
# Reads a second over the time of the reads; latencies are means of the bursts' own.
awk '{ n[$1]++; p50[$1] += $6; p99[$1] += $8; if ($1 == "hot") { reads += $2; time += $2 / $3 } }
  END { printf "reads=%.1f p50=%.3f p99=%.3f cold_p99=%.3f ", reads / time, p50["hot"] / n["hot"], p99["hot"] / n["hot"],
    p99["cold"] / n["cold"] }' "$dir/bursts"
redis shutdown nosave >/dev/null 2>&1 || true
wait "$server" || true
server=
