#!/usr/bin/env bash
# The tide curve of a record, and policies on the simulated machine.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
export XDG_STATE_HOME=$tmp/state
mkdir -p state/lowtide
echo '{"swap_s":0.00002,"disk_s":null}' >state/lowtide/calibration.json
scenarios=$repository/workloads/scenarios

"$LOWTIDE" run --max-overhead 50% --out fixed -- "$PATTERN" "$patterns/fixed.toml" --seconds 30 >out 2>err
equals "a program is recorded" $? 0
equals "with what a refault was measured to cost" "$(json fixed/meta.json '.refault_costs.swap_s * 1e6 | round')" 20
check "the record has a tide curve" "$LOWTIDE" report fixed curve --json --output curve.json
at() { json curve.json "[.points[] | select(.age_s == $1)][0]$2"; }
between "unused memory could be evicted" "$(at 5 '.cold[0].at | floor')" $((250 * mib)) $((470 * mib))
between "what it uses would be kept" "$(at 5 '.kept | floor')" $((55 * mib)) $((300 * mib))
equals "the summary has the budget of lowtide budget" "$(json fixed/summary.json .budget.lowtide_bytes)" \
  "$("$LOWTIDE" budget fixed --slowdown 2% --json 2>/dev/null | jq '.budgets[] | select(.mechanism == "lowtide").bytes')"
contains "the table has the cost of a refault" "$("$LOWTIDE" report fixed curve)" "A refault costs 20 µs from swap and "
for format in svg png html csv; do check "it is made as $format" "$LOWTIDE" report fixed curve --format $format --output curve.$format; done
contains "it is part of the page" "$(<fixed/report.html)" "Tide curve"

printf '[cold.age]\nanon = "5s"\nevery = "5s"\n[prcl.schemes]\nuse = ["prcl-tuned"]\n' >policies.toml
check "policies are tried on what was recorded" "$LOWTIDE" simulate --record fixed --policy policies.toml --json --output sim.json
equals "beside nothing" "$(json sim.json '[.[].policy] | join(" ")')" "nothing cold prcl"
between "idle memory would have been evicted" "$(json sim.json '.[1].out_bytes[0] | floor')" $((50 * mib)) $((460 * mib))
equals "nothing goes by itself" "$(json sim.json '.[0].out_bytes[0]')" 0

check "a scenario is simulated" "$LOWTIDE" simulate --scenario "$scenarios/web-and-batch.toml" --policy "$scenarios/policies.toml" --json --output one.json
check "once more" "$LOWTIDE" simulate --scenario "$scenarios/web-and-batch.toml" --policy "$scenarios/policies.toml" --json --output two.json
check "with the same outcome to the last digit" cmp one.json two.json
between "a policy saves memory, net" "$(json one.json '.[0].resident_bytes - .[2].resident_bytes - .[2].stored_bytes | floor')" $((50 * mib)) $((8000 * mib))
for format in text svg png html csv; do
  check "it is written as $format" "$LOWTIDE" simulate --scenario "$scenarios/web-and-batch.toml" --policy "$scenarios/policies.toml" --format $format --output sim.$format
done

printf 'duration = "1h"\n[machine]\nmemory = "8G"\nmemroy = "1G"\n' >wrong.toml
"$LOWTIDE" simulate --scenario wrong.toml 2>err
equals "a mistake in a scenario is wrong usage" $? 2
contains "and named with its place" "$(<err)" 'wrong.toml:4:1: unknown field `memroy`'
printf '[x.schemes]\nuse = ["ethp"]\n' >huge.toml
"$LOWTIDE" simulate --scenario "$scenarios/web-and-batch.toml" --policy huge.toml 2>err
equals "so is a policy that cannot be simulated" $? 2
contains "which is said" "$(<err)" "not simulated"
"$LOWTIDE" simulate --record "$tmp/none" 2>err
equals "a record that is not there" $? 5
"$LOWTIDE" run --monitor none --out blind -- true >out 2>err
"$LOWTIDE" simulate --record blind 2>err
equals "a record without use cannot be replayed" $? 3
"$LOWTIDE" report blind curve >out 2>err
contains "and has no curve" "$(<err)" "no tide curve"
