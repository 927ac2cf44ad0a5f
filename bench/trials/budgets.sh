#!/usr/bin/env bash
# Budgets against the least that holds, found by bisection: `budgets.sh [PROGRAM...]`, of the real ones (workloads/real).
#
# Environment: RUNS (3: under each budget at most), SLOWDOWN (5%), SWAP (zram:4G; none), KEEP (a folder for all records), PLOT (a file to draw to, .svg),
# LOWTIDE_WORKLOADS, LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
cd "$trials/../.." || exit 1
[ $# -gt 0 ] || set -- blocks sort zstd search lu graph sqlite gromacs compile bitrev redis memcached build
device='' ended=0
# shellcheck disable=SC2317,SC2329  # called by the trap
give_back() {
  [ -z "$device" ] || { swapoff "/dev/zram$device"; echo "$device" >/sys/class/zram-control/hot_remove; }
}
trap 'ended=$?; give_back; (exit "$ended"); finish_test' EXIT
case ${SWAP:-zram:4G} in
  zram:*)
    modprobe -q zram 2>/dev/null
    device=$(cat /sys/class/zram-control/hot_add) || exit 1
    size=${SWAP:-zram:4G}
    echo "${size#zram:}" >"/sys/block/zram$device/disksize"
    mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device" || exit 1
    ;;
esac
out=${KEEP:-$tmp/budgets}
mkdir -p "$out"
"$LOWTIDE" doctor --calibrate >/dev/null 2>&1
printf '%s, %s CPUs, %s, at most %s slower\n\n' "$(uname -r)" "$(nproc)" "${SWAP:-zram:4G}" "${SLOWDOWN:-5%}"
for name in "$@"; do
  workloads/real/program.sh prepare "$name" >/dev/null 2>&1
  "$LOWTIDE" budget --slowdown "${SLOWDOWN:-5%}" --verify --least --runs "${RUNS:-3}" --json --out "$out/$name" \
    -- workloads/real/program.sh run "$name" >"$out/$name.json" 2>"$out/$name.log" || tail -1 "$out/$name.log" | sed "s/^/$name: /"
done
# Only for drawing.
/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || apt-get -q -y --no-install-recommends install python3-matplotlib >/dev/null 2>&1
/usr/bin/python3 bench/trials/budgets.py "$out" ${PLOT:+"$PLOT"}
