#!/usr/bin/env bash
# guest: --no-flusher
# lowtide, killed at any instant: a run with a scheme and swap, the agent, the guard. $KILLS of each (3), from number $FIRST
# (0) on, of which the instants depend; only of $KIND (guards, agents or runs), if that is set. What was granted is taken back within five seconds by the
# watchdog; where that is killed too, by `recover`, which takes back all else.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh" || exit 1
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
kills=${KILLS:-3} first=${FIRST:-0}
modprobe zram 2>/dev/null
null_swap || { skip "lowtide is killed" "null_blk"; exit; }
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}
pattern_of all.toml 80M 80M 100000 20
pattern_of idle.toml 32M 1M 6 10
cat >agent.toml <<EOF
every = "1s"
ages = ["1s", "5s"]
state_file = "$tmp/state"
stop_file = "$tmp/stop"
[huge_pages]
most_empty = "50%"
[policy.eager.age]
anon = "1s"
every = "1s"
[[workload]]
cgroup = "$name/idle"
policy = "eager"
EOF

# All that lowtide may change here.
settings() {
  kernel_state
  grep -H . /sys/fs/cgroup/memory.* "$root"/memory.{min,low,high,max,swap.max} "$root"/cgroup.freeze \
    "$root"/*/memory.{min,low,high,max,swap.max} "$root"/*/cgroup.freeze /sys/kernel/mm/lru_gen/{enabled,min_ttl_ms} \
    /sys/kernel/mm/transparent_hugepage/{enabled,defrag,shrink_underused} /sys/kernel/mm/transparent_hugepage/khugepaged/* \
    /proc/sys/vm/{swappiness,page-cluster} 2>/dev/null | grep -vE 'memory\.(stat|current|peak|pressure|events|numa_stat|swap.current)|pages_collapsed|full_scans'
  ls -d /sys/fs/cgroup/lowtide* /sys/block/zram*
}
instant() { awk -v seed="$1" -v most="$2" 'BEGIN { srand(seed); print 0.02 + most * rand() }'; }
# killed ALSO: kills $running and, if ALSO is 1, its children (its watchdog).
killed() {
  local children=()
  [ "$1" -eq 0 ] || read -ra children 2>/dev/null <"/proc/$running/task/$running/children"
  kill -9 "$running" ${children[@]+"${children[@]}"} 2>/dev/null
  wait "$running" 2>/dev/null
}
# begin: what the kernel is to be like after each.
begin() {
  left=0 unlike=0
  before=$(settings)
}
# recovered: takes back what is left, and counts where that fails, or the kernel is not as it was before.
recovered() {
  "$LOWTIDE" recover >>recovered 2>&1 || left=$((left + 1))
  is_as_before || { unlike=$((unlike + 1)); diff <(echo "$before") <(settings) | sed 's/^/# /' | head; }
}
is_as_before() { [ "$(settings)" = "$before" ]; }
# Asked ten times a second by wait_for: a program would cost more than all else here.
granted() {
  local file value
  for file in "$root"/*/cgroup.freeze "$root/memory.min" "$root"/*/memory.min; do
    read -r value <"$file"
    [ "$value" = 0 ] || return 0
  done
  return 1
}
released() { ! granted; }
filled() { [ "$(held one)" -gt 30000000 ]; }

kill_guards() {
  local at_work=0 late=0 one two
  echo 100M >"$root/memory.max"
  in_group one "$PATTERN" all.toml; one=$started
  in_group two "$PATTERN" all.toml; two=$started
  wait_for 20 filled
  begin
  for ((number = first; number < first + kills; number++)); do
    start "$LOWTIDE" guard --cgroup "$name/*" --means "$([ $((number % 4)) -lt 2 ] && echo pause || echo protect)" 2>>log
    running=$started
    # Two of three once there is a grant, the others at any instant.
    [ $((number % 3)) -eq 0 ] || wait_for 12 granted
    sleep "$(instant $((number + 1)) 1)"
    ! granted || at_work=$((at_work + 1))
    killed $((number % 2))
    if [ $((number % 2)) -eq 0 ]; then
      wait_for 5 released || late=$((late + 1))
    fi
    recovered
  done
  between "guards were killed while something was granted" "$at_work" $((kills / 3)) "$kills"
  equals "of $kills killed guards, none left anything for more than five seconds" "$late" 0
  equals "recover takes back what is left where the watchdog is killed, too" "$left $unlike" "0 0"
  kill -0 "$one" && kill -0 "$two"
  equals "and the programs run" $? 0
  stop "$one"; stop "$two"
  rmdir "$root/one" "$root/two"
  echo max >"$root/memory.max"
}

kill_agents() {
  local at_work=0 program
  in_group idle "$PATTERN" all.toml; program=$started
  begin
  for ((number = first; number < first + kills; number++)); do
    start "$LOWTIDE" agent --config agent.toml 2>>log
    running=$started
    sleep "$(instant $((number + 1000)) 4)"
    gone "$running" || at_work=$((at_work + 1))
    killed $((number % 2))
    # The watchdog may be at it.
    [ $((number % 2)) -eq 1 ] || sleep 1
    recovered
  done
  equals "of $kills agents that were killed at work, none left anything after recover" "$at_work $left $unlike" "$kills 0 0"
  stop "$program"
  rmdir "$root/idle"
}

kill_runs() {
  local at_work=0 programs pid
  begin
  for ((number = first; number < first + kills; number++)); do
    start "$LOWTIDE" run --out "run-$number" --scheme prcl --max-overhead 100% --swap zram:64M -- "$PATTERN" idle.toml >/dev/null 2>>log
    running=$started
    sleep "$(instant $((number + 2000)) 5)"
    # The program goes on, without lowtide, to its end.
    programs=()
    read -ra programs 2>/dev/null <"/proc/$running/task/$running/children"
    is_as_before || at_work=$((at_work + 1))
    killed 0
    for pid in ${programs[@]+"${programs[@]}"}; do wait_for 30 gone "$pid"; done
    recovered
    rm -rf "run-$number"
  done
  between "runs were killed while the kernel was changed" "$at_work" $((kills / 2)) "$kills"
  equals "of $kills killed runs, none left anything after recover" "$left $unlike" "0 0"
}

for kind in ${KIND:-guards agents runs}; do "kill_$kind"; done
[ "$anything_failed" -eq 0 ] || sed 's/^/# /' recovered log | tail -60
rmdir "$root"
swapoff /dev/nullb0 && modprobe -r null_blk
