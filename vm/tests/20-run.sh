#!/usr/bin/env bash
# Cohort and map on this kernel's DAMON, against programs whose working set is known; and what is left of them.
# The price cap is lifted: under emulation a sample costs twenty times as much as on a processor.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
before=$(kernel_state)

need "DAMON paddr" "cohort and map measure known working sets" || exit 0

run() { "$LOWTIDE" run --monitor damon --max-overhead 100% --out "$1" -- "$PATTERN" "$2" --seconds "$3" >out 2>err; }

check "64 MiB in use of 512 are recorded" run fixed "$patterns/fixed.toml" 16
between "their working set of 1 s" "$(median_reading fixed 1)" $((58 * mib)) $((72 * mib))
between "the part watched" "$(json fixed/summary.json .monitor.coverage_percent)" 80 100
equals "the cohort stayed its own" "$(json fixed/meta.json '.notes[] | select(test("had not set"))')" ""
between "the map has regions" "$("$LOWTIDE" report fixed regions --format csv | wc -l)" 5 10000
check "sixteen islands of 4 MiB are recorded" run islands "$patterns/islands.toml" 16
between "their working set of 1 s" "$(median_reading islands 1)" $((55 * mib)) $((75 * mib))
# A loop without a pause costs an emulated machine most of its time: 100 rounds a second show the same memory in use.
sed 's/"max"/100/' "$patterns/tight.toml" >tight.toml
check "4 MiB in a tight loop are recorded" run tight tight.toml 12
between "their working set of 1 s" "$(median_reading tight 1)" $((3 * mib)) $((6 * mib))
# Under emulation a program takes longer than its argument says.
"$LOWTIDE" run --monitor damon --max-overhead 100% --out violent -- python3 "$repository/workloads/violent.py" 12 2>err
equals "a program that changes its address space violently ends well" $? 0
equals "and DAMON follows it to its end" "$(json violent/meta.json '.notes[] | select(test("stopped|had not set"))')" ""
between "with a working set" "$(median_reading violent 1)" 100000 1000000000
equals "nothing was left in the kernel" "$(kernel_state)" "$before"

# shellcheck disable=SC2016  # expanded by the program
start "$LOWTIDE" run --max-overhead 100% --out first -- sh -c 'echo $$ >program; exec "$@"' sh \
  "$PATTERN" tight.toml --seconds 60
check "a first lowtide takes DAMON" wait_for 30 grep -qsx on /sys/kernel/mm/damon/admin/kdamonds/0/state
"$LOWTIDE" run --out second -- sleep 3 2>err
contains "a second lowtide says who holds DAMON" "$(json second/meta.json '.monitor.refused[].why')" "another lowtide, pid"
equals "and uses the next best monitor" "$(json second/meta.json .monitor.backend)" mglru
# Only what was flushed can be read.
wait_for 20 sh -c 'ls first/parts/usage-* >list 2>&1'
kill -s KILL "$started"
sleep 1
check "the program of a killed lowtide lives on" kill "$(cat program)"
check "what a killed lowtide left is taken back" "$LOWTIDE" recover first
equals "and the kernel is as it was" "$(kernel_state)" "$before"
check "the record of a killed lowtide reads" "$LOWTIDE" report first
check "doctor reports what this kernel can do" "$LOWTIDE" doctor
equals "and changes nothing" "$(kernel_state)" "$before"
