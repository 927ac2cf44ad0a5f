#!/usr/bin/env bash
# Budgets from a run, from records, and in others' words.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
"$LOWTIDE" budget --json --out first -- "$PATTERN" "$patterns/fixed.toml" --seconds 12 >first.json 2>err
equals "a program is measured and its budgets told" $? 0
of() { json "$1" ".budgets[] | select(.mechanism == \"$2\") | .bytes"; }
between "App-MaxRSS is what it ever touched" "$(of first.json app-maxrss)" $((510 * mib)) $((530 * mib))
own=$(of first.json lowtide)
between "lowtide's is what it uses" "$own" $((60 * mib)) $((530 * mib))
equals "a record tells the same" "$(of <("$LOWTIDE" budget first --json) lowtide)" "$own"
between "without swap what is idle stays" "$(of <("$LOWTIDE" budget first --no-swap --json) lowtide)" $((500 * mib)) $((540 * mib))
"$LOWTIDE" budget first first >both
contains "several records are told one by one" "$(<both)" "Record by record"
contains "a unit's drop-in" "$("$LOWTIDE" budget first --emit systemd)" "MemoryMax="
contains "a batch script's line" "$("$LOWTIDE" budget first --emit slurm)" "#SBATCH --mem="
contains "a container's resources, without swap" "$("$LOWTIDE" budget first --emit kubernetes)" "without swap"
"$LOWTIDE" budget -- sh -c 'exit 7' >out 2>err
equals "a program that fails has no budget" $? 7
contains "and it is said why" "$(<err)" "ended with exit code 7"
"$LOWTIDE" budget nothing >out 2>err
equals "what is no record is refused" $? 5
"$LOWTIDE" budget --slowdown 0% first >out 2>err
equals "so is a slowdown that makes no sense" $? 2
"$LOWTIDE" budget >out 2>err
equals "and nothing to measure" $? 2
