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
ended=0
trap 'ended=$?; swap_off; (exit "$ended"); finish_test' EXIT
case ${SWAP:-zram:4G} in
  zram:*) swap_on "${SWAP:-zram:4G}" || exit 1 ;;
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
