#!/usr/bin/env bash
# WMO's two experiments: what the agent takes from a timed build and from a redis, and what that costs.
# `wmo.sh [build] [redis]`
#
#   none   no agent: the control
#   age    WMO's: everything colder than 10 s, every 40 s
#   auto   the youngest age that is predicted to cost little
#
# Peak and mean memory are what the cgroup holds (as WMO counts it), and net: with what zram takes for what is paged out.
# Configurations take turns within a round, and changes are against the control of the same round.
#
# Environment: ROUNDS (1), CONFIGS (none,age,auto), FILES (160: what the build compiles),
# OBJECT_MIB (0: more of debug information in each of them), JOBS (2), SECONDS_OF_REDIS (150),
# KEYS (400000), AGES (those that auto may choose from: those that the source samples best), FIGURES (all: those that are printed, see figures.py), LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
with_swap 2G "$trials/wmo.sh" "$@"
[ $# -gt 0 ] || set -- build redis
IFS=, read -ra configs <<<"${CONFIGS:-none,age,auto}"
# On a disk: what a build writes is page cache, which memory of a tmpfs is not.
work=$(mktemp -d -p "${TRIAL_DISK:-/var/tmp}" lowtide-trial.XXXXXX)
ended=0
trap 'ended=$?; end_groups; rm -rf -- "$work"; (exit "$ended"); finish_test' EXIT
make_groups || exit 1

# config NAME: the agent's file.
config() {
  cat <<END
ages = [$([ "$1" = age ] && echo '"10s"' || echo "${AGES:-}")]
stop_file = "$tmp/stop"
state_file = ""
[policy.wmo.age]
anon = "10s"
file = "10s"
every = "40s"
[[workload]]
cgroup = "$group_path/job"
policy = "$([ "$1" = age ] && echo wmo || echo "$1")"
END
}

# The compiler proper, the assembler and the linker; in a guest that has none, those that were put there.
tools() {
  if [ -x /opt/cc/cc1 ]; then
    export LD_LIBRARY_PATH=/opt/cc/lib PATH=/opt/cc:$PATH
    export CC1=/opt/cc/cc1
  else
    CC1=$(gcc -print-prog-name=cc1 2>/dev/null)
    export CC1
  fi
  command -v "$CC1" as ld make >/dev/null
}
build() {
  local folder=$work/tree begin
  begin=$(now)
  in_group job sh -c "python3 '$trials/tree.py' '$folder' '${FILES:-160}' '${OBJECT_MIB:-0}' && exec make -s -j${JOBS:-2} -C '$folder'" >&2
  wait "$started" || return
  printf 'runtime=%s ' "$(awk -v a="$begin" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }')"
  rm -rf -- "$folder"
}
redis() {
  "$trials/redis.sh" "$groups/job/cgroup.procs" "${SECONDS_OF_REDIS:-150}" "${KEYS:-400000}"
}

# one ROUND CONFIG EXPERIMENT: runs it and keeps a line of figures.
one() {
  local watching status=0
  # A cgroup of its own each time: what is left of one run is not another's.
  mkdir "$groups/job"
  agent=
  if [ "$2" != none ]; then
    config "$2" >"$tmp/agent.toml"
    start_agent "$tmp/agent.toml" || status=$?
    if [ "$status" -ne 0 ]; then
      rmdir "$groups/job"
      skip "$3 with $2" "an agent that works here: $(tail -n 1 "$tmp/agent.log")"
      return
    fi
  fi
  start python3 "$trials/figures.py" watch "$groups/job/$current" "$tmp/watched"
  watching=$started
  "$3" >"$tmp/done" || { echo "$3 failed with status $? ($2)" >&2; status=1; }
  kill "$watching" && wait "$watching"
  local cpu=0
  if [ -n "$agent" ]; then
    cpu=$(cpu_of "$agent")
    # Why there was not more or less, for whoever wants to know.
    [ -z "${TRIAL_LOGS:-}" ] || { mkdir -p "$TRIAL_LOGS" && cp "$tmp/agent.log" "$TRIAL_LOGS/$3-$2-$1.log"; }
    stop "$agent"
  fi
  wait_for 20 rmdir "$groups/job" 2>/dev/null
  [ "$status" -ne 0 ] || printf '%s %s %s %sagent_cpu=%s\n' "$1" "$2" "$(cat "$tmp/done")" "$(cat "$tmp/watched")" "$cpu" >>"$tmp/$3"
}

# What cannot work at all is said once.
config auto >"$tmp/agent.toml"
start_agent "$tmp/agent.toml" || { skip "$* with the agent" "an agent that works here: $(sed -n 's/^lowtide: agent: //p' "$tmp/agent.log")"; exit 0; }
stop "$agent"

for experiment; do
  if [ "$experiment" = build ] && ! tools; then skip build "a C compiler, binutils and make"; continue; fi
  # The first to run would fetch the programs from the disk for the others.
  mkdir "$groups/job"
  FILES=2 SECONDS_OF_REDIS=2 KEYS=2000 "$experiment" >/dev/null || exit 1
  wait_for 20 rmdir "$groups/job" 2>/dev/null
  for ((round = 1; round <= ${ROUNDS:-1}; round++)); do
    # Each round begins with another configuration.
    for ((at = 0; at < ${#configs[@]}; at++)); do
      one "$round" "${configs[(at + round - 1) % ${#configs[@]}]}" "$experiment"
    done
  done
  [ ! -s "$tmp/$experiment" ] || { printf '\n**%s**\n\n' "$experiment"; python3 "$trials/figures.py" table "$tmp/$experiment" "${FIGURES:-}"; }
done
