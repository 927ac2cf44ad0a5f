#!/usr/bin/env bash
# Each system call of lowtide fails once, and a signal comes at each place where it makes something: no panic, an exit code
# of the contract, the program's own code once it ran, and a kernel as it was before.
#
# FAULTS=all injects every fault, also into the agent and the guard, a second each; by default a part of them, which differs
# from call to call.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib.sh
. "$repository/scripts/lib.sh"
cd "$tmp" || exit 1

need root "faults are injected" || exit 0
if ! ensure_command strace strace; then
  skip "faults are injected" "command strace"
  exit 0
fi
if ! [ -e /sys/class/zram-control/hot_add ] && ! modprobe zram 2>/dev/null; then
  skip "faults are injected" zram
  exit 0
fi
# Other lowtides may be at work on this machine; cgroups of processes that are there are not left behind.
state() {
  kernel_state | grep -v '\.journal$'
  compgen -G '/sys/block/zram*'
}
before=$(state)

# --- signals
# Each mkdir of a start is a place where it may be ended: folders of its own, then its cgroups.
left=0 codes=
for ((number = 1; number <= 8; number++)); do
  strace -f -o trace -e trace=mkdir -e "inject=mkdir:signal=TERM:when=$number" \
    "$LOWTIDE" run --monitor none --out early -- sleep 0.1 2>err
  code=$?
  [ "$code" -ne 0 ] || break
  codes+="$code "
  [ "$(state)" = "$before" ] || left=$((left + 1))
  rm -rf early
done
between "signals came in the first instants" "$number" 3 8
equals "each ended lowtide with its number" "$(tr ' ' '\n' <<<"$codes" | sort -u | xargs)" 143
equals "and nothing was left" "$left" 0

# --- faults
# One fault at a time: system call, and error.
faults="
openat EMFILE
openat EACCES
openat ENOENT
openat EIO
read EIO
read EINVAL
write ENOSPC
write EIO
write EINVAL
write EBUSY
mkdir EEXIST
mkdir EACCES
rmdir EBUSY
unlink EIO
unlinkat EIO
rename EIO
fsync EIO
fdatasync EIO
ftruncate EIO
flock EINTR
statx EACCES
getdents64 EIO
swapon EBUSY
swapoff ENOMEM
clone3 EAGAIN
pidfd_open EMFILE
epoll_create1 EMFILE
epoll_wait EINTR
signalfd4 EMFILE
timerfd_create EMFILE
ioctl EIO
"

supervised=(timeout -s KILL 60 strace)
# injected SYSCALL ERROR NUMBER COMMAND...: runs it with that call of its main thread failing; 1 if there was none.
injected() {
  local call=$1 error=$2 number=$3
  shift 3
  "${supervised[@]}" -y -o trace -e trace="$call" -e "inject=$call:error=$error:when=$number" "$@" >out 2>err
  code=$?
  # A tracer that is no parent (-D) may still write.
  wait_for 5 grep -q '^+++' trace
  # The kernel made a device, and its number was lost by the fault: nobody can know of it. It is not set up, and takes no memory.
  if grep -q 'hot_add.*INJECTED' trace; then
    for device in /sys/block/zram*; do
      grep -qx "$device" <<<"$before" || echo "${device##*zram}" >/sys/class/zram-control/hot_remove
    done
  fi
  grep -q INJECTED trace
}

# wrong NAME WHY: adds to what went wrong.
wrong() { problems+=("$1: $2: $(tail -n 2 err | tr '\n' ' ')"); }

# attack NAME STEP COMMAND...: injects every STEP-th fault of each kind; `prepare` is run before each, `contract` says
# whether the code is right, and `unchanged` whether nothing is left.
attack() {
  local name=$1 step=$2 call error number offset=0 fault
  shift 2
  [ "${FAULTS:-}" != all ] || step=1
  problems=() count=0
  while read -r call error; do
    [ -n "$call" ] || continue
    offset=$((offset % step + 1))
    for ((number = offset; number < 2000; number += step)); do
      prepare
      injected "$call" "$error" "$number" "$@" || break
      # The kernel's own, which it does not fail.
      ! grep -q 'signalfd.*INJECTED' trace || continue
      # Nor is this lowtide yet.
      ! grep -q 'error while loading shared libraries' err || continue
      count=$((count + 1))
      fault="$call $error $number"
      ! grep -q panicked err || wrong "$fault" "panic"
      contract || wrong "$fault" "code $code"
      unchanged || wrong "$fault" "left $(diff <(state) - <<<"$before" | grep '^[<>]' | xargs)"
    done
  done <<<"$faults"
  equals "$name: each of $count faults leaves the kernel as it was, and has a code of the contract" \
    "$(printf '%s\n' "${problems[@]}" | head -20)" ""
}

prepare() { rm -rf out.d ran; }
unchanged() { [ "$(state)" = "$before" ]; }
# The program's own code once it ran. 6 is for what another tool holds, which is how EBUSY is read, of any call; 5 for what is gone.
contract() {
  case $code in
    6) [ "$error" = EBUSY ] && [ ! -e ran ] ;;
    5) [ "$error" = ENOENT ] && [ ! -e ran ] ;;
    42) [ -e ran ] ;;
    1 | 3 | 4 | 126 | 127) [ ! -e ran ] ;;
    *) return 1 ;;
  esac
}
program=(sh -c 'echo >ran; exit 42')
attack run 11 "$LOWTIDE" run --monitor none --out out.d -- "${program[@]}"
attack "run --scheme --swap" 17 "$LOWTIDE" run --scheme prcl --swap zram:64M --max-overhead 100% --out out.d -- "${program[@]}"

start sleep 1000
common=(--pid "$started" --duration 100ms --interval 50ms --out out.d)
# 6 as above.
contract() { case $code in 0 | 1 | 3 | 4 | 5) ;; 6) [ "$error" = EBUSY ] ;; *) return 1 ;; esac; }
attack "record --pid" 61 "$LOWTIDE" record --monitor none "${common[@]}"
attack "schemes apply --pid" 101 "$LOWTIDE" schemes apply prcl --swap zram:64M "${common[@]}"

# What a killed one left is taken back, or recover fails; then a second one takes it back.
prepare() {
  rm -rf out.d
  (
    strace -f -o trace -e trace=swapon -e inject=swapon:signal=KILL \
      "$LOWTIDE" run --monitor none --swap zram:64M --out out.d -- true
    true
  ) 2>/dev/null
  [ "$(state)" != "$before" ] || problems+=("the killed one left nothing")
}
unchanged() {
  if [ "$code" -ne 0 ]; then "$LOWTIDE" recover >out 2>&1; fi
  [ "$(state)" = "$before" ]
}
attack recover 1 "$LOWTIDE" recover

# --- daemons
# attack_daemons: two workloads, of which nothing is to be had, and a daemon, ended after a second. -D: by a signal that it gets,
# not strace.
attack_daemons() {
  local supervised=(timeout --preserve-status -s TERM -k 20 1 strace -D) mount own group name
  mount=$(awk '/ - cgroup2 / || / - cgroup / && $NF ~ /(^|,)memory(,|$)/ { print $5; exit }' /proc/self/mountinfo)
  own=$(awk -F: '$2 ~ /(^|,)memory(,|$)/ { print $3 }' /proc/self/cgroup)
  group=${own%/}/lowtide-test-$$
  mkdir "$mount$group" "$mount$group/one" "$mount$group/two" || return
  # shellcheck disable=SC2016  # expanded by the inner shell
  for name in one two; do start sh -c 'echo 0 >"$1" && exec sleep 100000' sh "$mount$group/$name/cgroup.procs"; done
  printf '%s\n' 'every = "200ms"' "state_file = '$tmp/state'" "listen = 'unix:$tmp/page'" \
    '[[workload]]' "cgroup = '${group#/}/*'" "policy = 'auto'" >daemon.toml
  prepare() { rm -f state; }
  unchanged() { [ "$(state)" = "$before" ]; }
  # 2: the file, or a pattern in it, cannot be checked.
  contract() { case $code in 0 | 1 | 3 | 4 | 5) ;; 2) grep -qE '^lowtide: (daemon.toml: Invalid|.*: workload 1: cannot)' err ;; 6) [ "$error" = EBUSY ] ;; *) return 1 ;; esac; }
  attack agent 1 "$LOWTIDE" agent --config daemon.toml
  attack guard 1 "$LOWTIDE" guard --cgroup "${group#/}/*"
  stop "${all_started[-1]}"; stop "${all_started[-2]}"
  rmdir "$mount$group/one" "$mount$group/two" "$mount$group"
}
[ "${FAULTS:-}" != all ] || attack_daemons

# An agent at work, in which calls of all kinds fail again and again, those of its threads and its watchdog included.
cat >agent.toml <<END
every = "200ms"
state_file = "$tmp/state"
[policy.calm.lifecycle]
every = "500ms"
[lifecycle]
policy = "calm"
socket = "$tmp/socket"
END
# EAGAIN: to read signals fails in no other way.
start_failing 20 30 "openat:EMFILE read:EAGAIN write:ENOSPC statx:EACCES getdents64:EIO fdatasync:EIO pidfd_open:EMFILE
  epoll_wait:EINTR accept4:EMFILE sendto:ECONNRESET recvfrom:EIO process_madvise:EAGAIN rename:EIO clone3:EAGAIN" \
  "$LOWTIDE" agent --config agent.toml 2>log
agent=$started
check "an agent starts" wait_for 10 test -S socket
start "$PATTERN" "$patterns/fixed.toml" --seconds 60 >/dev/null
hinted() { "$LOWTIDE" hint "$1" --pid "$started" --socket "$tmp/socket" 2>err; }
for ((second = 0; second < 8; second++)); do
  hinted background
  sleep 1
done
kill -0 "$agent"
equals "and works on while calls fail" $? 0
check "and takes hints still" wait_for 10 hinted foreground
kill -TERM "$agent"
check "it ends when it is asked to" wait_for 15 gone "$agent"
wait "$agent"
equals "and well" $? 0
between "calls did fail" "$(grep -c INJECTED trace)" 20 1000000
equals "without a panic" "$(grep panicked log)" ""
check "and leaves nothing" unchanged
