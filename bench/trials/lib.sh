# shellcheck shell=bash
# What the trials of the agent share. To be sourced. Prints figures and passes no judgement; what a machine lacks is said
# in a line `skip - NAME: needs CAPABILITY`.

trials=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/native/lib.sh
. "$trials/../../tests/native/lib.sh"

# with_swap SIZE SCRIPT [ARGUMENT]...: runs a script again inside of `lowtide run`, which lends it a zram swap and takes it
# back however it ends; returns at once where that is so already. Ends with the script's status.
with_swap() {
  local size=$1 status=0
  shift
  [ -z "${LOWTIDE_TRIAL_SWAP:-}" ] || { exec 2>&3; return 0; }
  modprobe -q zram 2>/dev/null
  if [ ! -e /sys/class/zram-control/hot_add ]; then
    skip "${1##*/}" "zram (modprobe zram)"
    exit 0
  fi
  # lowtide's own summary is not this trial's.
  LOWTIDE_TRIAL_SWAP=$size "$LOWTIDE" run --out "$tmp/record" --monitor none --interval 1m --swap "zram:$size" -- \
    "$@" 3>&2 2>"$tmp/run.log" || status=$?
  [ -e "$tmp/record/summary.json" ] || cat "$tmp/run.log" >&2
  exit "$status"
}

# swap_on zram:SIZE: a zram swap until swap_off, which a script's trap has to call.
zram_device=''
swap_on() {
  modprobe -q zram 2>/dev/null
  zram_device=$(cat /sys/class/zram-control/hot_add) || return
  echo "${1#zram:}" >"/sys/block/zram$zram_device/disksize" && mkswap "/dev/zram$zram_device" >/dev/null && swapon "/dev/zram$zram_device"
}
swap_off() {
  [ -n "$zram_device" ] || return 0
  swapoff "/dev/zram$zram_device"
  echo "$zram_device" >/sys/class/zram-control/hot_remove
}

# Where the trial's cgroups are: sets $groups (a folder), $group_path (its path below the mount) and $current (the name of
# the file that says what a cgroup holds).
# shellcheck disable=SC2034  # for the trials
make_groups() {
  local mount=/sys/fs/cgroup
  current=memory.current
  if have "cgroup v1"; then
    mount=/sys/fs/cgroup/memory current=memory.usage_in_bytes
  fi
  group_path=lowtide-trial-$$ groups=$mount/lowtide-trial-$$
  mkdir "$groups" || return
  [ ! -e "$groups/cgroup.subtree_control" ] || echo +memory >"$groups/cgroup.subtree_control"
}

# Takes away what make_groups made; what runs in it is this trial's own.
end_groups() {
  local pid group _
  [ -n "${groups:-}" ] && [ -d "$groups" ] || return 0
  for pid in "${all_started[@]}"; do stop "$pid"; done
  for _ in {1..50}; do
    rmdir "$groups"/*/ 2>/dev/null
    for group in "$groups"/*/; do
      [ ! -d "$group" ] || { xargs -r kill -9 <"$group/cgroup.procs"; rmdir "$group"; } 2>/dev/null
    done
    ! rmdir "$groups" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "$groups could not be removed" >&2
}

# in_group NAME COMMAND...: starts it in a cgroup of the trial.
in_group() {
  local group=$groups/$1
  mkdir -p "$group"
  shift
  # shellcheck disable=SC2016  # expanded by the inner shell
  start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@"
}

# CPU seconds of a process so far.
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.2f", ($12 + $13) / hz }' "/proc/$1/stat"; }

# start_agent FILE: an agent with that configuration; its pid is in $agent, its log in $tmp/agent.log. Fails with the agent's
# own exit status where it cannot work.
start_agent() {
  local status=0
  start "$LOWTIDE" agent --config "$1" 2>"$tmp/agent.log"
  agent=$started
  wait_for 20 grep -qs '^started' "$tmp/agent.log" && return 0
  gone "$agent" || stop "$agent"
  wait "$agent" || status=$?
  return "${status:-1}"
}

# seconds since some point, with a fraction.
now() { echo "$EPOCHREALTIME"; }

# actions_of LOG: how many lines of each kind an agent wrote.
actions_of() { awk '{ n[$1]++ } END { for (k in n) printf "%s %d, ", k, n[k] }' "$1"; }
