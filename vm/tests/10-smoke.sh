#!/usr/bin/env bash
# The guest is what the other tests take it for, and lowtide starts in it.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"

contains "lowtide --version runs" "$("$LOWTIDE" --version 2>&1)" "lowtide "

for operations in vaddr paddr; do
  if need "DAMON $operations" "DAMON offers $operations"; then ok "DAMON offers $operations"; fi
done

if need "cgroup v2" "a memory cgroup counts"; then
  group=/sys/fs/cgroup/smoke
  mkdir "$group"
  # shellcheck disable=SC2016  # expanded by the inner shell
  peak=$(sh -c 'echo $$ >"$1/cgroup.procs"; head -c 50M /dev/zero | tail -n 1 | wc -c >"$2"; cat "$1/memory.peak"' \
    sh "$group" "$tmp/bytes")
  rmdir "$group"
  between "a memory cgroup counts" "$peak" $((50 << 20)) $((200 << 20))
fi

if need PSI "memory pressure is reported"; then
  check "memory pressure is reported" grep -q '^full avg10=.* total=[0-9]' /proc/pressure/memory
fi

# seen_hot PID: bytes of the process that DAMON found used, once it has settled, within a minute. Without lowtide: this tests the rig.
seen_hot() {
  local admin=/sys/kernel/mm/damon/admin/kdamonds all=18446744073709551615 kdamond region bytes=0
  kdamond=$admin/0
  echo 1 >"$admin/nr_kdamonds"
  echo 1 >"$kdamond/contexts/nr_contexts"
  (
    cd "$kdamond/contexts/0" || exit
    echo vaddr >operations
    echo 20000 >monitoring_attrs/intervals/sample_us
    echo 400000 >monitoring_attrs/intervals/aggr_us
    echo 1 >targets/nr_targets
    echo "$1" >targets/0/pid_target
    echo 1 >schemes/nr_schemes
    echo stat >schemes/0/action
    for limit in sz nr_accesses age; do echo "$all" >"schemes/0/access_pattern/$limit/max"; done
    echo 1 >schemes/0/access_pattern/nr_accesses/min
  )
  echo on >"$kdamond/state"
  for _ in {1..30}; do
    sleep 2
    echo update_schemes_tried_regions >"$kdamond/state"
    bytes=0
    for region in "$kdamond"/contexts/0/schemes/0/tried_regions/[0-9]*; do
      [ -e "$region/start" ] || continue
      bytes=$((bytes + $(cat "$region/end") - $(cat "$region/start")))
    done
    # Until it has found it, and does not take its surroundings for it any more. A reading that falls on the end of an
    # aggregation finds next to nothing, however long DAMON has been at it.
    [ "$bytes" -lt 3000000 ] || [ "$bytes" -gt 16000000 ] || break
  done
  echo off >"$kdamond/state"
  echo 0 >"$admin/nr_kdamonds"
  echo "$bytes"
}

# What the emulator hides without its TLB flusher (see vm/guest/flusher.c): it reads 0 then.
if need "DAMON vaddr" "DAMON finds hot memory hot" && need "a free DAMON" "DAMON finds hot memory hot"; then
  # Newer kernels have DAMON at work from the start; it is there for one user at a time.
  stat=/sys/module/damon_stat/parameters/enabled
  stat_was=$(cat "$stat" 2>/dev/null)
  [ "$stat_was" != Y ] || echo N >"$stat"
  sed 's/"max"/100/' "$patterns/tight.toml" >"$tmp/tight.toml"
  start "$PATTERN" "$tmp/tight.toml"
  sleep 2
  between "DAMON finds hot memory hot" "$(seen_hot "$started")" 3000000 16000000
  stop "$started"
  [ "$stat_was" != Y ] || echo Y >"$stat"
fi
announced "doctor names the monitor that a run uses"
# Somebody else has DAMON.
if need "a free DAMON" "and the next best where DAMON is in use"; then
  start "$LOWTIDE" run --max-overhead 100% --out "$tmp/holder" -- sleep 60 2>/dev/null
  wait_for 30 grep -qsx on /sys/kernel/mm/damon/admin/kdamonds/0/state
  announced "and the next best where DAMON is in use"
  stop "$started"
fi
