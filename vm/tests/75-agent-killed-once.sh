#!/usr/bin/env bash
# guest: --no-flusher
# The agent, killed again and again at any instant, against programs whose working sets are known, with zram for swap.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh" || exit 1
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
deaths=${DEATHS:-15}
switch=/sys/kernel/mm/lru_gen/enabled
was=$(cat "$switch" 2>/dev/null) || { skip "an agent that is killed" "a kernel with CONFIG_LRU_GEN"; exit; }
[ -e /sys/fs/cgroup/memory.reclaim ] || { skip "an agent that is killed" "memory.reclaim"; exit; }
modprobe zram 2>/dev/null
before=$(kernel_state)
knob=/proc/sys/vm/page-cluster
old=$(cat "$knob")
[ $((was & 1)) -ne 0 ] || echo y >"$switch"
device=$(cat /sys/class/zram-control/hot_add)
echo 1G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}

agent() { start "$LOWTIDE" agent --config agent.toml 2>>log; running=$started; }
end_agent() { kill "$running" && wait "$running"; }

# Everything that is idle for five seconds, every second; a little at a time, every second.
cat >agent.toml <<EOF
every = "1s"
ages = ["1s", "5s"]
stop_file = "$tmp/stop"
state_file = "$tmp/state"
[policy.eager.age]
anon = "5s"
every = "1s"
[policy.eager.age.brakes]
quota = "64M"
[policy.steady.pressure]
step = "5%"
every = "1s"
[[workload]]
cgroup = "$name/eager"
policy = "eager"
[[workload]]
cgroup = "$name/steady"
policy = "steady"
[[workload]]
cgroup = "$name/hinted"
policy = "none"
[lifecycle]
socket = "$tmp/socket"
EOF

program='
import time
memory = bytearray(b"x") * (160 << 20)
while True:
    for page in range(0, 32 << 20, 4096): memory[page]
    time.sleep(0.2)'
in_group eager python3 -c "$program"
in_group steady python3 -c "$program"
in_group hinted python3 -c 'import time; memory = bytearray(b"x") * (64 << 20); time.sleep(300)'
full() { [ "$(held eager)" -gt $((150 * mib)) ] && [ "$(held hinted)" -gt $((60 * mib)) ]; }
check "programs hold what they hold" wait_for 40 full

# What another killed lowtide left is taken back by the agent, too.
mkdir -p /run/lowtide/undo
printf '%s\n' '{"owner":{"pid":4194303,"command":"a dead one"}}' \
  "{\"taken\":{\"id\":0,\"undo\":{\"write\":{\"path\":\"$knob\",\"old\":\"$old\"}}}}" >/run/lowtide/undo/4194303.journal
echo $((old + 1)) >"$knob"

: >log
agent
check "it keeps what it knows" wait_for 20 test -s state
equals "what another one left was taken back" "$(cat "$knob")" "$old"
check "a hint is heard" "$LOWTIDE" hint background --cgroup "$name/hinted" --socket "$tmp/socket"
kept() { grep -q '"hints":{"' state; }
check "and kept" wait_for 5 kept

# Killed at any instant, from its start on.
for ((death = 0; death < deaths; death++)); do
  sleep "$(awk -v seed="$death" 'BEGIN { srand(seed + 7); print 0.1 + 2 * rand() }')"
  kill -9 "$running"
  wait "$running" 2>/dev/null
  agent
done
sleep 4
check "after $deaths kills it is at work" kill -0 "$running"
between "lives that went on from what was known" "$(grep -c '^restored' log)" $((deaths / 3)) "$deaths"
contains "with all workloads" "$(grep '^restored' log | tail -1)" "workloads=3"
equals "no file was torn" "$(grep -c 'left out' log)" 0
equals "and every one could be written" "$(grep -c 'not saved' log)" 0

few() { [ "$(held "$1")" -lt $((70 * mib)) ]; }
check "what is idle is gone in the end" wait_for 40 few eager
# The kernel takes some of what is in use with it, which is back within a turn of the program.
mostly_held() { for ((i = 0; i < 9; i++)); do held "$1"; sleep 0.2; done | sort -n | sed -n 5p; }
between "and what is in use is there" "$(mostly_held eager)" $((32 * mib)) $((70 * mib))
between "a little at a time leaves what is in use, too" "$(held steady)" $((32 * mib)) $((170 * mib))
check "what was hinted at is paged out" test "$(held hinted)" -lt $((40 * mib))

# What it knew at its end is there at its next start.
end_agent
equals "it ends on a signal" $? 0
contains "the hint is kept" "$(cat state)" '"hints":{"'
: >log
agent
check "and the state is taken up" wait_for 5 grep -q '^restored.*workloads=3' log
end_agent

# A file that is torn, and a disk that is full, are said, and stop nothing.
mkdir full && mount -t tmpfs -o size=4k tmpfs full && sed -i "s|$tmp/state|$tmp/full/state|" agent.toml
head -c 300 state >full/state
: >log
agent
wait_for 10 grep -q 'not saved' log
sleep 3
contains "a torn file is said and left out" "$(cat log)" "it is left out: it is torn"
equals "a full disk is said once" "$(grep -c 'not saved' log)" 1
check "and does not stop it" kill -0 "$running"
end_agent
equals "nor keeps it from ending" $? 0
umount full

# Nothing stale prevents a start, or stays.
agent
sleep 2
check "it starts again" kill -0 "$running"
end_agent
equals "and ends" $? 0
equals "no journals are left" "$(find /run/lowtide/undo -name '*.journal')" ""
for pid in "${all_started[@]}"; do stop "$pid"; done
rmdir "$root"/*/ "$root"
swapoff "/dev/zram$device" && echo "$device" >/sys/class/zram-control/hot_remove
[ $((was & 1)) -ne 0 ] || echo n >"$switch"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
