#!/usr/bin/env bash
# Programs that run together in less memory than they need (workloads/mixes.toml): with nothing, with what the kernel has,
# and with each of the guard's means. `thrash.sh [MIX...]`
#
# Environment: RUNS (1: rounds), CONFIGS (what the machine has), SWAP (zram:2G; file:2G for a file on $TRIAL_DISK, /var/tmp),
# GENERATIONS (as they are; n: with the classic LRU), LU, BITREV (sizes, see workloads/mixes.toml), LOWTIDE_WORKLOADS, KEEP (a folder for the comparison and all records), LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
cd "$trials/../.." || exit 1
[ $# -gt 0 ] || set -- lu+lu bitrev+bitrev compile+bitrev compile+bitrev-half three four
if [ -x /opt/cc/cc1 ]; then
  export CC1=/opt/cc/cc1 LD_LIBRARY_PATH=/opt/cc/lib
fi
file='' was='' switch=/sys/kernel/mm/lru_gen/enabled
ended=0
# shellcheck disable=SC2317,SC2329  # called by the trap
give_back() {
  [ -z "$was" ] || echo "$was" >"$switch"
  [ -z "$file" ] || { swapoff "$file"; rm -f -- "$file"; }
}
trap 'ended=$?; give_back; (exit "$ended"); finish_test' EXIT
options=()
if [ -n "${GENERATIONS:-}" ] && [ -e "$switch" ]; then
  was=$(cat "$switch")
  echo "$GENERATIONS" >"$switch"
fi
swap=${SWAP:-zram:2G}
case $swap in
  file:*)
    file=${TRIAL_DISK:-/var/tmp}/lowtide-trial-swap-$$
    fallocate -l "${swap#file:}" "$file" && chmod 600 "$file" && mkswap "$file" >/dev/null && swapon "$file" || exit 1
    ;;
  *)
    modprobe -q zram 2>/dev/null
    options+=(--swap "$swap")
    ;;
esac
# The cost of a fault gives the part of a loss that faults explain.
[ -z "${CALIBRATE:-}" ] || "$LOWTIDE" doctor --calibrate --with-zram >/dev/null 2>&1
usual=orig,guard,published
if have "cgroup v2"; then
  usual=orig,min-ttl,guard,turns,published
  [ ! -x /opt/oomd/systemd-oomd ] || usual+=,oomd
  [ -e /sys/kernel/mm/lru_gen/min_ttl_ms ] || usual=${usual/min-ttl,/}
fi
printf '%s, %s CPUs, %s, MGLRU %s\n\n' "$(uname -r)" "$(nproc)" "$swap" "$(cat "$switch" 2>/dev/null || echo none)"
out=${KEEP:-$tmp/compare}
[ -z "${KEEP:-}" ] || options+=(--keep)
IFS=, only="$*"
"$LOWTIDE" compare --suite workloads/mixes.toml --only "$only" --configs "${CONFIGS:-$usual}" --runs "${RUNS:-1}" \
  "${options[@]}" --out "$out" --format markdown 2>"$tmp/compare.log" || cat "$tmp/compare.log"
# What the guard did, by kind.
for log in "$out"/*.agent; do
  [ -e "$log" ] || continue
  printf '%s: %s\n' "$(basename "$log" .agent)" "$(actions_of "$log")"
done
