#!/usr/bin/env bash
# Operation schemes that lowtide carries out by DAMON's map, and those that the kernel does.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
modprobe zram 2>/dev/null
before=$(kernel_state)
need "DAMON paddr" "the kernel carries out schemes" || exit 0
acted() { "$LOWTIDE" run --swap zram:1G --max-overhead 100% --out "$1" "${@:2}" >out 2>err; }
used() { json "$1/meta.json" ".schemes[0].$2"; }

check "a scheme is carried out" acted fixed --scheme prcl-tuned -- "$PATTERN" "$patterns/fixed.toml" --seconds 22
equals "by lowtide itself, by the map of DAMON" "$(used fixed by)-$(json fixed/summary.json .monitor.backend)" \
  "lowtide, by process_madvise-damon-vaddr"
# A first piece that lies in memory that is in use is found out, and holds the rest for some seconds.
between "what is idle is paged out" "$(used fixed applied_bytes)" $((64 * mib)) $((900 * mib))
between "and saved" "$(json fixed/summary.json '.ledger.saved_anon_bytes')" $((8 * mib)) $((500 * mib))
between "what is in use stays" "$(json fixed/summary.json '.faults.refault_anon')" 0 20000

# The system is no process that lowtide could advise.
start "$PATTERN" "$patterns/fixed.toml" --seconds 60
program=$started
sleep 5
check "the kernel carries out a scheme" \
  "$LOWTIDE" schemes apply prcl-tuned --system --swap zram:1G --max-overhead 100% --duration 20s --out whole
equals "on page frames" "$(used whole by)" "the kernel's DAMON, on page frames"
between "what is idle is paged out then, too" "$(json whole/summary.json '.memory.swap.peak_bytes')" $((10 * mib)) $((700 * mib))
between "which the kernel counts" "$(used whole applied_bytes)" $((10 * mib)) $((900 * mib))
stop "$program"

check "huge pages are made where memory is in use" acted ethp --scheme ethp -- "$PATTERN" "$patterns/fixed.toml" --seconds 14
equals "on virtual addresses" "$(used ethp by)" "the kernel's DAMON, on virtual addresses"
between "of what is in use" "$(used ethp applied_bytes)" $((2 * mib)) $((100000 * mib))

equals "nothing was left in the kernel" "$(kernel_state)" "$before"
