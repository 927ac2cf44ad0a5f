#!/usr/bin/env bash
# guest: --cpus 2 --no-flusher
# The guard, on cgroups of version 2: two programs that do not fit together, with a disk for swap.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
before=$(kernel_state)
null_swap || { skip "two programs take turns" "null_blk"; exit; }
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
echo 100M >"$root/memory.max"
name=${root##*/}
pattern_of all.toml 80M 80M 600 20

# The guard has the capabilities of the unit, and no others.
unit=/lowtide/packaging/systemd/lowtide-agent.service
capabilities=-all$(sed -n 's/^CapabilityBoundingSet=//p' "$unit" | tr 'A-Z ' 'a-z\n' | sed 's/^cap_/,+/' | tr -d '\n')
guard() { start setpriv --no-new-privs --bounding-set "$capabilities" "$LOWTIDE" guard --cgroup "$name/*" "$@" 2>log; running=$started; }
# at N FILE VALUE: whether that file has that value in so many of our groups.
at() { [ "$(grep -lx "$3" "$root"/*/"$2" | wc -l)" -eq "$1" ]; }
protected() { grep -qE '^[0-9]{8,}$' "$root/memory.min" && [ "$(grep -lE '^[0-9]{8,}$' "$root"/*/memory.min | wc -l)" -eq 1 ]; }
cpu_us() { awk '$1 == "usage_usec" { print $2 }' "$root/$1/cpu.stat"; }
refaults() { awk '$1 == "workingset_refault_anon" { print $2 }' "$root/$1/memory.stat"; }

# The one that is whole by now may stay so by itself: whoever comes anew takes from it again.
anew() { stop "$two"; wait_for 10 sh -c "! grep -q . $root/two/cgroup.procs"; in_group two "$PATTERN" all.toml --seconds 400; two=$started; }
# meanwhile COMMAND...: whether that becomes true while they take memory from each other.
meanwhile() {
  for _ in 1 2 3; do
    anew
    ! wait_for 30 "$@" || return 0
  done
  return 1
}

in_group one "$PATTERN" all.toml --seconds 400
one=$started
guard --dry-run
check "the guard starts" wait_for 10 grep -q ^started log
sleep 8
equals "a program that has what it needs is left alone" "$(grep -cE '^(protect|pause)' log)" 0
in_group two "$PATTERN" all.toml --seconds 400
two=$started
meanwhile grep -qE '^protect .*stopped="dry run"' log
equals "a dry run says what it would do" $? 0
check "and does nothing" at 2 memory.min 0
stop "$running"

guard
meanwhile protected
equals "of two that thrash, one is protected" $? 0
check "and the log says why" wait_for 5 grep -q "^protect.*of their time to each other" log
whole() { basename "$(dirname "$(grep -lE '^[1-9]' "$root"/*/memory.min | head -1)")"; }
filled() { [ "$(whole)" != . ] && [ "$(held "$(whole)")" -gt $((76 << 20)) ]; }
check "it becomes whole" wait_for 30 filled
# While it is protected; turns change, and what is on its way arrives. Left alone, each faults thousands of times a second.
calm() {
  local who was
  who=$(whole)
  [ "$who" != . ] || return 1
  was=$(refaults "$who")
  sleep 2
  [ "$(whole)" = "$who" ] && [ $(($(refaults "$who") - was)) -lt 500 ]
}
check "and faults no more" wait_for 60 calm
kill -9 "$running"
wait "$running" 2>/dev/null
check "killed, it leaves nobody protected" wait_for 3 at 2 memory.min 0
check "above neither" wait_for 3 grep -qx 0 "$root/memory.min"

# With a higher priority one is whole, and the other is kept small, though it loses nearly all of its time.
stop "$one"; stop "$two"
cat >agent.toml <<END
state_file = ""
[[workload]]
cgroup = "$name/two"
policy = "guard"
priority = 10
[[workload]]
cgroup = "$name/one"
policy = "guard"
END
in_group one "$PATTERN" all.toml --seconds 400
one=$started
start "$LOWTIDE" agent --config agent.toml 2>log
running=$started
small() { grep -qE '^[0-9]{7,8}$' "$root/one/memory.high"; }
meanwhile small
equals "the one with the lower priority is kept small" $? 0
filled() { [ "$(held two)" -gt $((76 << 20)) ]; }
check "the other becomes whole" wait_for 30 filled
has_run() { [ "$(cpu_us one)" -gt $((was + 200000)) ]; }
was=$(cpu_us one)
check "both go on" wait_for 10 has_run
check "the log says why" grep -q '^limit .*/one .*of higher priority' log
equals "and nothing is paused" "$(grep -c ^pause log)" 0
kill -9 "$running"
wait "$running" 2>/dev/null
check "killed, it leaves no limit" wait_for 3 at 2 memory.high max

guard --means pause
meanwhile at 1 cgroup.freeze 1
equals "where others are to wait, one does" $? 0
check "and the log says so" wait_for 5 grep -q ^pause log
for step in 3600 -7200; do
  date -s "@$(($(date +%s) + step))" >/dev/null
  sleep 6
  meanwhile at 1 cgroup.freeze 1
  equals "and still after the clock was set by $step s, which is longer than a lease" $? 0
done
equals "and no grant ran out meanwhile" "$(kill -0 "$running" && grep -c '^expired' log)" 0
stop "$running"
check "ended, all run" at 2 cgroup.freeze 0
kill -0 "$one" && kill -0 "$two"
equals "nothing was killed" $? 0
stop "$one"; stop "$two"
empty() { rmdir "$root/one" "$root/two"; rmdir "$root"; }
wait_for 10 empty 2>/dev/null
swapoff /dev/nullb0 && modprobe -r null_blk
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
