#!/usr/bin/env bash
# The demo's workload: a redis that holds 500,000 keys while its clients read only 25,000 of them, a twentieth.
#
# Everything is private and temporary: a unix socket and no port, no file of the data, all removed at the end.
#
#   DEMO_SECONDS   how long the clients read (30)
#   DEMO_KEYS      how many keys are loaded (500000); a twentieth of them is read

set -euo pipefail
export LC_ALL=C
# shellcheck source=scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

seconds=${DEMO_SECONDS:-30}
keys=${DEMO_KEYS:-500000}
hot=$((keys / 20))
value_bytes=1024

dir=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-demo.XXXXXX")
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

redis() { redis-cli -s "$socket" "$@"; }

figure() { redis info "$1" | tr -d '\r' | sed -n "s/^$2://p"; }

for tool in redis-cli redis-benchmark; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install redis-tools" >&2; exit 1; }
done
find_redis_server "$dir" || { echo "redis-server is missing: apt-get install redis-server" >&2; exit 1; }

# A background process of a script ignores SIGINT unless it sets its own handler, which redis does.
"$dir/redis-server" --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$dir" --logfile "$dir/log" &
server=$!
for _ in $(seq 100); do
  redis ping >/dev/null 2>&1 && break
  kill -0 "$server" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
  sleep 0.1
done

# Names as redis-benchmark makes them from key:__rand_int__: twelve digits. Loaded in steps, so that no script of the
# server runs for long.
load='local value = string.rep("x", ARGV[3])
for key = ARGV[1], ARGV[2] - 1 do redis.call("SET", string.format("key:%012d", key), value) end'
step=$hot
for ((first = 0; first < keys; first += step)); do
  redis eval "$load" 0 "$first" "$((first + step < keys ? first + step : keys))" "$value_bytes" >/dev/null
done
echo "redis: $(redis dbsize) keys loaded, $(figure memory used_memory_human) in use"

# redis-benchmark knows no rate, and at full speed it and the server keep two CPUs busy. Short bursts touch every hot
# page several times a second and leave the machine mostly idle.
redis config resetstat >/dev/null
end=$((SECONDS + seconds))
while [ "$SECONDS" -lt "$end" ]; do
  redis-benchmark -s "$socket" -t get -n 10000 -r "$hot" -c 4 -q >/dev/null
  sleep 0.2
done

hits=$(figure stats keyspace_hits)
misses=$(figure stats keyspace_misses)
echo "redis: $hits reads of $hot keys found their key, $misses did not"
redis shutdown nosave >/dev/null 2>&1 || true
wait "$server" || true
server=
# A benchmark of keys that are not there would measure nothing.
[ "$hits" -gt 0 ] && [ "$misses" -eq 0 ]
