#!/usr/bin/env bash
# `make demo`: measures a redis of which clients use only a twentieth of the keys, and prints what lowtide found. Then such
# a redis fills up with and without lowtide's agent, which reclaims idle memory. Some four minutes.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

target=${CARGO_TARGET_DIR:-target}
record=$target/demo
lowtide_pid=

# Ctrl-C of a terminal reaches only this script, as lowtide runs in a process group of its own; a signal to this
# script alone must end the run just as well. So it is passed on to that group, in which everything started here is.
interrupted() {
  trap - INT TERM HUP
  echo "interrupted: stopping the demo" >&2
  if [ -n "$lowtide_pid" ]; then
    kill -s INT -- "-$lowtide_pid" 2>/dev/null || true
    wait "$lowtide_pid" 2>/dev/null || true
  fi
  exit 130
}
trap interrupted INT TERM HUP

# The same kind of redis without an agent and with two policies of it, side by side. A missing capability of this machine is
# reported in a line, and is no failure of the demo.
reclaim() {
  local status=0
  echo "Now a redis that fills up as it serves, on a zram swap: without the agent (none), with WMO's rule (age: every 40 s,"
  echo "evicts what is idle for more than 10 s), and with the agent's own (auto). A minute each."
  set -m
  as_root env LOWTIDE="$(realpath -- "$target/release/lowtide")" SECONDS_OF_REDIS="${DEMO_RECLAIM_SECONDS:-60}" AGES='"5s", "10s"' KEYS="${DEMO_KEYS:-400000}" \
    FIGURES=resident_peak,net_peak,net_avg,reads,p50,p99,agent_cpu bench/trials/wmo.sh redis </dev/null &
  lowtide_pid=$!
  set +m
  wait "$lowtide_pid" || status=$?
  lowtide_pid=
  case $status in
    0) ;;
    126) echo "skip - the agent: needs root, or sudo without a password" ;;
    *) fail "the redis with the agent ended with status $status" ;;
  esac
}

ensure_toolchain
cargo build --release --locked --package lowtide
{ ensure_command redis-cli redis-tools && ensure_command redis-benchmark redis-tools; } || fail "the demo needs redis"

# lowtide does not write into a folder that holds something; an earlier demo's record is ours to replace.
if [ -e "$record/meta.json" ]; then
  rm -rf -- "$record"
fi

# Job control gives lowtide its own process group, and its children do not start with SIGINT ignored. Outside of the
# terminal's foreground it must not read the terminal.
set -m
"$target/release/lowtide" run --out "$record" -- scripts/demo-workload.sh </dev/null &
lowtide_pid=$!
set +m
status=0
wait "$lowtide_pid" || status=$?
lowtide_pid=
[ "$status" -eq 0 ] || fail "the measured run ended with status $status"
[ -e "$record/summary.json" ] || fail "the record in $record was not finished"

echo
echo "The record is in $record; for people: $record/report.html"
echo
reclaim
