#!/usr/bin/env bash
# The agent's life-cycle reclaim, which needs no cgroup of version 2: hints over its socket, and who may give them.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
chmod 755 "$tmp"
names=("a workload in the background is paged out" "and fetched when it returns" "hints of other users are refused")
need root "${names[@]}" || exit 0
if [ ! -e /sys/class/zram-control/hot_add ]; then
  for name in "${names[@]}"; do skip "$name" zram; done
  exit 0
fi
before=$(kernel_state)
device=$(cat /sys/class/zram-control/hot_add)
give_back() {
  swapoff "/dev/zram$device" 2>/dev/null
  echo "$device" >/sys/class/zram-control/hot_remove 2>/dev/null
}
# Whatever happens, the swap goes.
# shellcheck disable=SC2154  # set in the trap
trap 'ended=$?; give_back; (exit "$ended"); finish_test' EXIT
echo 1G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"

resident() { awk '$1 == "RssAnon:" { print $2 * 1024 }' "/proc/$1/status"; }
hint() { "$LOWTIDE" hint "$@" --socket "$tmp/socket"; }

cat >agent.toml <<EOF
every = "500ms"
state_file = "$tmp/state"
[policy.calm.lifecycle]
prefetch = true
every = "1s"
[lifecycle]
policy = "calm"
socket = "$tmp/socket"
EOF
hint background --pid $$ 2>err
equals "without an agent, a hint is an error" $? 1
contains "that says what to do" "$(cat err)" "is \`lowtide agent\` running"

start "$LOWTIDE" agent --config agent.toml 2>log
agent=$started
check "the agent listens" wait_for 5 test -S socket
start "$PATTERN" "$patterns/fixed.toml" --seconds 120 >/dev/null
program=$started
grown() { [ "$(resident "$program")" -gt $((500 * mib)) ]; }
wait_for 20 grown

# Stopped, as a shell stops a job: nothing of it is in use.
kill -STOP "$program"
check "a hint is heard" hint background --pid "$program"
stowed() { [ "$(resident "$program")" -lt $((16 * mib)) ]; }
check "${names[0]}" wait_for 20 stowed
# What was done is said after it was done.
check "the log says so, and why" wait_for 10 grep -q 'reason="it is in the background"' log
# What is fetched lies in the swap cache until it is used.
cached() { awk '$1 == "SwapCached:" { print $2 * 1024 }' /proc/meminfo; }
was=$(cached)
check "a hint that it is back is heard" hint foreground --pid "$program"
fetched() { [ $(($(cached) - was)) -gt $((300 * mib)) ]; }
check "${names[1]}" wait_for 20 fetched || { echo "# was $was, is $(cached)"; tail -n 5 log | sed "s,^,# ,"; }
kill -CONT "$program"

# In between it used an eighth of its memory; the rest stayed out.
returned() { [ "$(resident "$program")" -gt $((62 * mib)) ]; }
wait_for 20 returned
kill -STOP "$program"
hint background --pid "$program"
wait_for 20 stowed
# The first fetch may have taken several turns.
fetches=$(grep -c '^fetch ' log)
hint foreground --pid "$program"
again() { [ "$(grep -c '^fetch ' log)" -gt "$fetches" ]; }
wait_for 20 again
between "of what is fetched the second time it is what was in use" "$(sed -n 's/^fetch .* anon_bytes=\([0-9]*\).*/\1/p' log | tail -n 1)" \
  $((56 * mib)) $((80 * mib))
kill -CONT "$program"

# As its owner one may, as another not.
setpriv --reuid nobody --regid nogroup --clear-groups -- "$LOWTIDE" hint background --pid "$program" --socket "$tmp/socket" 2>err
equals "${names[2]}" $? 4
start setpriv --reuid nobody --regid nogroup --clear-groups -- sleep 60
own=$started
sleep 1
check "an owner's is heard" \
  setpriv --reuid nobody --regid nogroup --clear-groups -- "$LOWTIDE" hint background --pid "$own" --socket "$tmp/socket"
hint background --pid 4194303 2>err
equals "one about nothing is refused" $? 5
hint background --cgroup /none 2>err
equals "and one about no workload" $? 5

# Peers that send garbage, too much, nothing, or never read.
python3 - "$tmp/socket" <<'EOF'
import socket, sys
def peer():
    it = socket.socket(socket.AF_UNIX)
    it.connect(sys.argv[1])
    return it
silent = [peer() for _ in range(20)]
for text in (b"{}", b"\xff" * 100000, b'{"background":1,"pid":-1}'):
    it = peer()
    try:
        it.sendall(text)
        it.shutdown(socket.SHUT_WR)
    except OSError:
        pass
EOF
check "peers that misbehave are survived" hint background --pid "$own"
"$LOWTIDE" agent --config agent.toml 2>err
equals "a second agent is refused" $? 6
touch /run/lowtide/stop
stop "$program"
start "$PATTERN" "$patterns/fixed.toml" --seconds 60 >/dev/null
program=$started
wait_for 20 grown
hint background --pid "$program"
sleep 3
between "nothing is taken while the stop file is there" "$(resident "$program")" $((500 * mib)) $((600 * mib))
rm /run/lowtide/stop
kill "$agent"
wait "$agent"
equals "it ends on a signal" $? 0
equals "and its socket is removed" "$(ls socket 2>/dev/null)" ""

# The kernel has no reclaim request for cgroups of version 1: memory is found by its addresses.
reclaimed="what is idle goes, by its addresses"
if have "cgroup v1"; then
  group=/sys/fs/cgroup/memory$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)/lowtide-test-$$
  mkdir -p "$group/job"
  cat >reclaims.toml <<EOF
every = "1s"
ages = ["1s", "5s"]
[policy.eager.age]
anon = "5s"
every = "1s"
[policy.eager.age.brakes]
slowdown = "20%"
[[workload]]
cgroup = "**/lowtide-test-$$/job"
policy = "eager"
EOF
  # shellcheck disable=SC2016  # expanded by the inner shell
  start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group/job" \
    "$PATTERN" "$patterns/fixed.toml" --seconds 300 >/dev/null
  program=$started
  wait_for 20 grown
  start "$LOWTIDE" agent --config reclaims.toml --dry-run 2>log
  wait_for 40 grep -q '^reclaim' log
  stop "$started"
  between "a dry run takes nothing" "$(resident "$program")" $((500 * mib)) $((600 * mib))
  start "$LOWTIDE" agent --config reclaims.toml 2>log
  few() { [ "$(resident "$program")" -lt $((110 * mib)) ]; }
  check "$reclaimed" wait_for 90 few
  # Blocks are tried, and those in use come back once or twice; never all of it again and again.
  between "and what is in use stays" "$(resident "$program")" $((60 * mib)) $((110 * mib))
  between "few pages refault" \
    "$(awk '$1 == "total_workingset_refault_anon" { print $2 }' "$group/job/memory.stat")" 0 40000
  swapoff "/dev/zram$device"
  check "that swap is turned off is noticed" wait_for 10 grep -q 'held cgroup=all policy=eager by=swap' log
  sleep 6
  between "and nothing is taken then" "$(resident "$program")" $((500 * mib)) $((600 * mib))
  swapon "/dev/zram$device"
  stop "$started"
  stop "$program"
  rmdir "$group/job" "$group"
else
  skip "$reclaimed" "cgroup v1"
fi
for pid in "${all_started[@]}"; do stop "$pid"; done
give_back
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
