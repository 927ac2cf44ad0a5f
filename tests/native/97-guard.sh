#!/usr/bin/env bash
# The guard on cgroups of version 1, which have no protection: of two programs that do not fit together, one waits in the
# freezer; first in cgroups of their own, then as processes of the same one.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib.sh
. "$repository/scripts/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
names=("of two that thrash, one waits" "and the other makes progress" "one that hangs leaves nothing paused" "killed, it leaves nothing paused" "nothing was killed"
  "a pause that cannot be ended is reported" "the guard works though nobody reads its log" "the one with the higher priority is whole")
need root "${names[@]}" || exit 0
need "cgroup v1" "${names[@]}" || exit 0
freezer=$(awk '/ - cgroup / && $NF ~ /(^|,)freezer(,|$)/ { print $5 }' /proc/self/mountinfo)
if [ ! -e /sys/class/zram-control/hot_add ] || [ -z "$freezer" ]; then
  for name in "${names[@]}"; do skip "$name" "zram and a freezer"; done
  exit 0
fi
before=$(kernel_state)
device=$(cat /sys/class/zram-control/hot_add)
own=$(memory_cgroup)
root=$(memory_mount)$own/lowtide-test-$$
give_back() {
  local group
  for group in one two; do wait_for 10 rmdir "$root/$group"; done
  rmdir "$root"
  swapoff "/dev/zram$device" 2>/dev/null
  echo "$device" >/sys/class/zram-control/hot_remove 2>/dev/null
} 2>/dev/null
ended=0
# Whatever happens, the swap goes; what runs in the groups must end first, and for that it must not be frozen.
trap 'ended=$?; "$LOWTIDE" recover >/dev/null; for pid in "${all_started[@]}"; do stop "$pid"; done; give_back; (exit "$ended"); finish_test' EXIT
echo 1G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"
mkdir "$root" "$root/one" "$root/two"
echo 260M >"$root/memory.limit_in_bytes"
pattern_of all.toml 192M 192M 600 '"max"'
in_group() {
  local group=$root/$1
  shift
  # shellcheck disable=SC2016  # expanded by the inner shell
  start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@" >/dev/null
}
# Its file is gone once it runs, as after an upgrade.
guard() {
  cp "$LOWTIDE" upgraded
  start ./upgraded guard --cgroup "${own#/}/lowtide-test-$$/*" "$@" 2>log
  running=$started
  wait_for 5 grep -q upgraded "/proc/$running/maps"
  rm upgraded
}
frozen() { [ "$(grep -lx FROZEN "$freezer"/lowtide-guard-*/freezer.state 2>/dev/null | wc -l)" -eq "$1" ]; }
cpu() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# thrash GROUP CHECK...: two that thrash, one of them in GROUP, until the check holds. Once one of them is whole, the kernel takes
# nothing of it any more, and the other thrashes alone, which no turns help: where that comes first, both begin anew.
thrash() {
  local group=$1
  shift
  for _ in 1 2 3 4 5; do
    in_group one "$PATTERN" all.toml --seconds 300
    one=$started
    in_group "$group" "$PATTERN" all.toml --seconds 300
    two=$started
    ! wait_for 12 "$@" || break
    stop "$one"; stop "$two"
  done
}
guard
thrash two frozen 1
check "${names[0]}" frozen 1
check "and the log says why" wait_for 5 grep -q "^pause.*of their time to each other" log
largest() {
  local group
  for group in one two; do
    [ "$(awk '$1 == "total_rss" { print $2 }' "$root/$group/memory.stat")" -lt $((180 << 20)) ] || return 0
  done
  return 1
}
check "${names[1]}" wait_for 20 largest
kill -STOP "$running"
released() { gone "$running" && frozen 0; }
# It is ended after five seconds.
check "${names[2]}" wait_for 15 released
# One that is stopped still would keep the test waiting.
kill -9 "$running" 2>/dev/null
wait "$running" 2>/dev/null
stop "$one"; stop "$two"

# What cannot be taken back is tried again until it is: the freezer is read-only for a while, for the guard alone.
start unshare --mount --propagation private "$LOWTIDE" guard --cgroup "${own#/}/lowtide-test-$$/*" 2>log
running=$started
thrash two frozen 1
nsenter --mount --target "$running" mount -o remount,bind,ro "$freezer"
waiting=$(cat "$freezer"/lowtide-guard-*/cgroup.procs)
if [ "$waiting" = "$one" ]; then stop "$two"; else stop "$one"; fi
check "${names[5]}" wait_for 30 grep -q "could not be taken back yet" log
"$LOWTIDE" recover >out
equals "recover fails beside it" $? 1
contains "and names who tries again" "$(cat out)" "(pid $running), which runs and tries again"
nsenter --mount --target "$running" mount -o remount,bind,rw "$freezer"
check "and it is taken back as soon as it can be" wait_for 10 frozen 0
stop "$running"; stop "$one"; stop "$two"

# A log that nobody reads: a pipe that is full.
mkfifo full
exec {full}<>full
dd if=/dev/zero bs=4096 count=64 oflag=nonblock 1>&"$full" 2>/dev/null
start "$LOWTIDE" guard --cgroup "${own#/}/lowtide-test-$$/*" --out turns 2>&"$full"
running=$started
thrash two frozen 1
check "${names[6]}" frozen 1
sleep 5
kill -TERM "$running"
check "and what waits runs again at its end" wait_for 5 frozen 0
check "which comes" wait_for 5 gone "$running"
wait "$running"
exec {full}>&-
"$LOWTIDE" report turns timeline >out
check "its record shows who ran" grep -q '/\(one\|two\) │.*█' out
check "and who waited" grep -q '/\(one\|two\) │.*░' out
check "and what was changed" grep -qE ' (pause|release) ' out
stop "$one"; stop "$two"

# Of two of which one has a higher priority, the other is kept small and goes on.
guard --priority "${own#/}/lowtide-test-$$/one"
# limited 1|0: whether it has a limit, and whatever does not fit waits; or neither.
limited() {
  [ "$(("$(cat "$root/two/memory.limit_in_bytes")" < 192 << 20))" -eq "$1" ] && grep -qx "oom_kill_disable $1" "$root/two/memory.oom_control"
}
thrash two limited 1
check "${names[7]}" wait_for 20 largest
check "as the other is kept small, and nothing is killed for that" limited 1
check "and the log says why" grep -q '^limit .*/two .*of higher priority' log
has_run() { [ "$(cpu "$two")" -gt $((was + 20)) ]; }
was=$(cpu "$two")
check "and it goes on" wait_for 10 has_run
equals "the other one has no limit" "$(grep -c '^\(limit\|pause\) .*/one ' log)" 0
kill -9 "$running"
wait "$running" 2>/dev/null
check "killed, the guard leaves no limit" wait_for 5 limited 0
kill -0 "$one" && kill -0 "$two"
equals "and both programs" $? 0
stop "$one"; stop "$two"

# Calls of all kinds fail again and again, those of its threads and of its watchdog included.
if ensure_command strace strace; then
  # EAGAIN: to read signals fails in no other way.
  start_failing 150 20 "openat:EMFILE read:EAGAIN write:EIO statx:EACCES getdents64:EIO mkdir:EACCES rmdir:EBUSY
    pidfd_open:EMFILE fdatasync:EIO clone3:EAGAIN" \
    "$LOWTIDE" guard --cgroup "${own#/}/lowtide-test-$$/*" 2>log
  running=$started
  thrash two grep -q '^pause' log
  check "something is paused while calls fail" grep -q '^pause' log
  sleep 10
  kill -TERM "$running"
  check "the guard ends when it is asked to" wait_for 10 gone "$running"
  wait "$running"
  equals "and well" $? 0
  check "and nothing stays frozen" frozen 0
  equals "or stopped" "$(grep -lE '^State:\s+T' "/proc/$one/status" "/proc/$two/status")" ""
  between "calls did fail" "$(grep -c INJECTED trace)" 5 1000000
  equals "without a panic" "$(grep panicked log)" ""
  stop "$one"; stop "$two"
else
  skip "something is paused while calls fail" "command strace"
fi

# $KILLS (1) of it, at any instant while somebody waits: processes of one cgroup, and cgroups.
left() { compgen -G "$freezer/lowtide-guard-*" >/dev/null; }
gone_and_free() { frozen 0 && ! left; }
late=0 died=0
for ((number = 0; number < ${KILLS:-1}; number++)); do
  if [ $((number % 2)) -eq 0 ]; then guard --by process; thrash one frozen 1; else guard; thrash two frozen 1; fi
  if [ "$number" -eq 0 ]; then
    check "of two processes of one cgroup, one waits" frozen 1
    check "and the log names it" wait_for 5 grep -q "^pause.*one#" log
  else
    sleep "$(awk -v seed="$number" 'BEGIN { srand(seed); print 2 * rand() }')"
  fi
  kill -9 "$running"
  wait "$running" 2>/dev/null
  wait_for 5 gone_and_free || late=$((late + 1))
  kill -0 "$one" && kill -0 "$two" || died=$((died + 1))
  stop "$one"; stop "$two"
done
equals "${names[3]}" "$late" 0
equals "${names[4]}" "$died" 0
"$LOWTIDE" recover >/dev/null
give_back
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
