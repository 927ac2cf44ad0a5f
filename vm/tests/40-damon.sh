#!/usr/bin/env bash
# DAMON in full: others that hold it, intervals tuned by the kernel, trace events that are lost.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
before=$(kernel_state)
need "DAMON paddr" "DAMON is used in full" || exit 0
run() { "$LOWTIDE" run --monitor damon --max-overhead 100% --out "$1" "${@:4}" -- "$PATTERN" "$patterns/$2.toml" --seconds "$3" >out 2>err; }
notes() { json "$1/meta.json" '.notes[]'; }

# Newer kernels come with a module that keeps statistics, and DAMON to itself.
stat=/sys/module/damon_stat/parameters/enabled
if [ -e "$stat" ]; then
  was=$(cat "$stat")
  [ "$was" = Y ] || echo Y >"$stat"
  check "statistics of the kernel's own do not keep DAMON" run stat fixed 6
  contains "and are said to have paused" "$(notes stat)" "damon_stat"
  equals "and go on afterwards" "$(cat "$stat")" Y
  start "$LOWTIDE" run --monitor damon --out killed -- sleep 30
  wait_for 20 grep -qx N "$stat"
  kill -s KILL "$started"
  sleep 1
  "$LOWTIDE" recover >recovered 2>&1
  equals "also after a crash" "$(cat "$stat")" Y
  [ "$was" = Y ] || echo "$was" >"$stat"
else
  skip "statistics of the kernel's own do not keep DAMON" "DAMON_STAT"
fi

# A module that acts is not to be interfered with.
reclaim=/sys/module/damon_reclaim/parameters/enabled
if [ -e "$reclaim" ] && [ "$(cat "$reclaim")" = N ]; then
  [ ! -e "$stat" ] || { stat_was=$(cat "$stat"); echo N >"$stat"; }
  echo Y >"$reclaim"
  "$LOWTIDE" run --out held -- sleep 2 2>err
  contains "a module that holds DAMON is named" "$(json held/meta.json '.monitor.refused[].why')" damon_reclaim
  echo N >"$reclaim"
  [ ! -e "$stat" ] || echo "$stat_was" >"$stat"
else
  skip "a module that holds DAMON is named" "DAMON_RECLAIM"
fi

# Of the default price, a percent, a slow core makes little: it must suffice for a program that touches 512 MiB as it starts.
"$LOWTIDE" run --monitor damon --out usual -- "$PATTERN" "$patterns/fixed.toml" --seconds 30 >out 2>err
between "at the default price pages are sampled soon" "$(json usual/summary.json '.working_set[0].readings')" 10 31
between "and the first answer is what is used" "$(json usual/summary.json .answer.steady.used_bytes)" $((60 * mib)) $((70 * mib))

# Sixteen islands in 512 MiB: 64 MiB are in use.
check "a goal for the map's intervals is taken" run tuned islands 40 --map-goal 4%
between "and the working set is the same" \
  "$(median_reading tuned 1)" $((55 * mib)) $((75 * mib))
if [[ $(notes tuned) == *"cannot tune them"* ]]; then
  skip "the kernel tunes the map's intervals" "intervals_goal"
else
  contains "the kernel tunes the map's intervals" "$(notes tuned)" "tuned the map's aggregation interval"
fi

# Slices of 64 MiB that are swept once in 0.5, 1, 2, ... 64 s: those over 5 s bring 64 MiB every 8 s, every 16 s and so on.
check "a program whose reuse times are known is recorded" run tail idle-tail 45
"$LOWTIDE" report tail curve --json --output curve.json
at() { json curve.json "[.points[] | select(.age_s == $1)][0]$2"; }
equals "its tide curve rests on watched pages" "$(json curve.json .basis)" pages
between "what would come back is what the program is made for" "$(at 5 '.back[0].at | floor')" $((9 * mib)) $((19 * mib))
between "with a band that says something" "$(at 5 '.back[0] | .high - .low | floor')" 1 $((8 * mib))
between "the less, the older" "$(at 15 '.back[0].at | floor')" $((1 * mib)) $((8 * mib))

# A recorder that is stopped for so long that the buffers run over.
start "$LOWTIDE" run --monitor damon --max-overhead 100% --out late -- "$PATTERN" "$patterns/fixed.toml" --seconds 45
sleep 12
kill -s STOP "$started"
sleep 20
kill -s CONT "$started"
wait "$started"
equals "a recorder that was stopped continues" $? 0
contains "and says what it has lost" "$(notes late)" "trace events were lost"
between "with a true working set" \
  "$(median_reading late 1)" $((58 * mib)) $((72 * mib))
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
