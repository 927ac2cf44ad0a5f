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

printf '[[scheme]]\naction = "pageout"\nage = { min = "2s" }\naccess = { max = "0%%" }\nquota = { size = "4M", every = "1s" }\n' >slow.toml
start "$PATTERN" "$patterns/fixed.toml" --seconds 40
program=$started
sleep 3
check "a quota is given to the kernel" \
  "$LOWTIDE" schemes apply slow.toml --system --swap zram:1G --max-overhead 100% --duration 14s --out slow
between "and holds" "$(used slow applied_bytes)" 1 $((110 * mib))
between "which is counted" "$(used slow quota_exceeded)" 1 100000
stop "$program"

check "a dry run counts" acted dry --scheme prcl-tuned --dry-run -- "$PATTERN" "$patterns/fixed.toml" --seconds 12
equals "and takes nothing" "$(json dry/summary.json '.memory.swap.peak_bytes')" 0
between "of what it would be tried on" "$(used dry tried_bytes)" 1 $((100000 * mib))

check "schemes are tried on the whole system" \
  "$LOWTIDE" schemes apply prcl-tuned --system --dry-run --max-overhead 100% --duration 11s --out whole
between "on its page frames" "$(used whole tried_bytes)" 1 $((100000 * mib))

equals "nothing was left in the kernel" "$(kernel_state)" "$before"
