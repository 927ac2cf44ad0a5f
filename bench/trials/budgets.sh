#!/usr/bin/env bash
# Budgets against the least that holds, found by bisection: `budgets.sh [PROGRAM...]`, of the real ones (workloads/real).
#
# Environment: RUNS (3: under each budget at most), SLOWDOWN (5%), SWAP (zram:4G; none), KEEP (a folder for all records), LOWTIDE_WORKLOADS, LOWTIDE.

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
printf '| program | swap | App-MaxRSS | Sys-MaxRSS | VPA | Unlimited | lowtide | the least that holds | off by | slower: lowtide | App-MaxRSS | Sys-MaxRSS | VPA |\n'
printf '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n'
for name in "$@"; do
  workloads/real/program.sh prepare "$name" >/dev/null 2>&1
  if ! "$LOWTIDE" budget --slowdown "${SLOWDOWN:-5%}" --verify --least --runs "${RUNS:-3}" --json --out "$out/$name" \
    -- workloads/real/program.sh run "$name" >"$out/$name.json" 2>"$out/$name.log"; then
    tail -1 "$out/$name.log" | sed "s/^/$name: /"
    continue
  fi
  jq -r --arg name "$name" '
    def mib: if . == null then "-" else (. / 1048576 | round | tostring) + " MiB" end;
    def percent: if . == null then "-" else (1000 * . | round / 10 | tostring) + " %" end;
    def slower: if .failed > 0 then "\(.failed) of \(.runs) failed" else .slowdown.mean | percent end;
    (.budgets | map({(.mechanism): .bytes}) | add) as $all
    | .verify as $verify
    | ($verify.tried | map(.swap) | unique)[] as $swap
    | ($verify.tried | map(select(.swap == $swap) | {(.mechanism): .}) | add) as $tried
    | $tried.lowtide as $own
    | ([$verify.verified[] | select(.swap == $swap) | .bytes][0]) as $least
    | [$name, (if $swap then "yes" else "no" end), ($all["app-maxrss"] | mib), ($all["sys-maxrss"] | mib),
       ($all.vpa | mib), ($all.unlimited | mib), ($own.bytes | mib), ($least | mib),
       (if $least then ($own.bytes / $least - 1) | percent else "-" end), ($own | slower),
       ($tried["app-maxrss"] | slower), ($tried["sys-maxrss"] | slower), ($tried.vpa | slower)]
    | "| " + join(" | ") + " |"' "$out/$name.json"
done
