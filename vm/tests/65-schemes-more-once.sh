#!/usr/bin/env bash
# Quotas, dry runs and the complete system: lowtide's part more than the kernel's.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
modprobe zram 2>/dev/null
before=$(kernel_state)
need "DAMON paddr" "quotas and dry runs" || exit 0
acted() { "$LOWTIDE" run --swap zram:1G --max-overhead 100% --out "$1" "${@:2}" >out 2>err; }
used() { json "$1/meta.json" ".schemes[0].$2"; }

# 448 MiB are idle, and stay as they are when they are made the first to be reclaimed: only the quota limits how much is.
start "$PATTERN" "$patterns/fixed.toml" --seconds 40
program=$started
sleep 3
IFS=- read -r from to < <(awk '{ print $1 }' "/proc/$program/maps" | while IFS=- read -r a b; do
  [ $((0x$b - 0x$a)) -lt $((512 * mib)) ] || echo "$a-$b"
done)
cat >slow.toml <<EOF
[[scheme]]
action = "cold"
age = { min = "2s" }
access = { max = "0%" }
quota = { size = "4M", every = "1s" }
filter = [{ type = "addr", start = $((0x$from)), end = $((0x$to)), matching = false }]

# Inactive, and so without a quota in force.
[[scheme]]
action = "cold"
quota = { size = "4M", every = "1s" }
watermarks = { every = "1s", high = "2%", mid = "1%", low = "0.1%" }
EOF
check "a quota is given to the kernel" \
  "$LOWTIDE" schemes apply slow.toml --pid "$program" --max-overhead 100% --duration 14s --out slow
equals "on virtual addresses" "$(used slow by)" "the kernel's DAMON, on virtual addresses"
between "and holds from the first interval" "$(used slow applied_bytes)" $((4 * mib)) $((14 * 4 * mib))
between "which is counted" "$(used slow quota_exceeded)" 1 100000
equals "beside one that is not in force" "$(json slow/meta.json '.schemes[1].applied_bytes')" 0
stop "$program"

check "a dry run counts" acted dry --scheme prcl-tuned --dry-run -- "$PATTERN" "$patterns/fixed.toml" --seconds 12
equals "and takes nothing" "$(json dry/summary.json '.memory.swap.peak_bytes')" 0
between "of what it would be tried on" "$(used dry tried_bytes)" 1 $((100000 * mib))

check "schemes are tried on the whole system" \
  "$LOWTIDE" schemes apply prcl-tuned --system --dry-run --max-overhead 100% --duration 11s --out whole
between "on its page frames" "$(used whole tried_bytes)" 1 $((100000 * mib))

equals "nothing was left in the kernel" "$(kernel_state)" "$before"
