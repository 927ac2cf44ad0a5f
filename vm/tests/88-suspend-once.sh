#!/usr/bin/env bash
# The machine is suspended while an agent reclaims, and while the guard has one of two programs paused.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
clock=/sys/class/rtc/rtc0/wakealarm
{ grep -qw mem /sys/power/state && [ -e "$clock" ]; } || { skip "the machine is suspended" "suspend to memory"; exit; }
null_swap || { skip "the machine is suspended" "null_blk"; exit; }
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}
untouched=$(kernel_state)

boot_s() { awk '{ print int($1) }' /proc/uptime; }
# suspended SECONDS: the machine, for so long on its own clock. The clock of CLOCK_MONOTONIC stands still.
suspended() {
  local was
  was=$(boot_s)
  echo 0 >"$clock" && echo "+$1" >"$clock" && echo deep >/sys/power/mem_sleep && echo mem >/sys/power/state
  [ $(($(boot_s) - was)) -ge $(($1 - 5)) ]
}
refaults() { awk '$1 == "workingset_refault_anon" { print $2 }' "$root/$1/memory.stat"; }

# Swept every five seconds: nothing of it is idle for as long as the policy wants it to be.
cat >agent.toml <<END
every = "1s"
ages = ["1s", "10s"]
state_file = ""
[policy.eager.age]
anon = "10s"
every = "1s"
[[workload]]
cgroup = "$name/swept"
policy = "eager"
END
pattern_of swept.toml 64M 64M 600 0.2
in_group swept "$PATTERN" swept.toml; swept=$started
start "$LOWTIDE" agent --config agent.toml 2>log; agent=$started
sleep 30
before=$(refaults swept)
check "the machine is suspended" suspended 20
sleep 15
between "what was in use before it is not evicted after it" $(($(refaults swept) - before)) 0 800 ||
  sed 's/^/# /' log | tail -30
stop "$agent"
equals "and the agent ends well" "$(tail -n 1 log | cut -d' ' -f1)" ended
stop "$swept"
rmdir "$root/swept"

echo 100M >"$root/memory.max"
pattern_of all.toml 80M 80M 100000 20
in_group one "$PATTERN" all.toml; one=$started
in_group two "$PATTERN" all.toml; two=$started
start "$LOWTIDE" guard --cgroup "$name/*" --means pause 2>log; guard=$started
paused() { grep -qx 1 "$root"/*/cgroup.freeze; }
released() { ! paused; }
check "a guard pauses one of two" wait_for 30 paused
waits() { grep -lx 1 "$root"/*/cgroup.freeze; }
first=$(waits)
check "the machine is suspended again" suspended 15
# The one that is favoured runs for 45 s or so.
other_waits() { ! waits | grep -qxF "$first" && paused; }
check "the guard goes on after that: the other has its turn" wait_for 120 other_waits || sed 's/^/# /' log | tail -30
! gone "$guard" && kill -0 "$one" && kill -0 "$two"
equals "and nobody was ended" $? 0
wait_for 30 paused
kill -9 "$guard"
wait "$guard" 2>/dev/null
check "its watchdog, too, is awake" wait_for 5 released
stop "$one"; stop "$two"
rmdir "$root"/* "$root" 2>/dev/null
equals "nothing is left" "$(kernel_state)" "$untouched"
swapoff /dev/nullb0 && modprobe -r null_blk
