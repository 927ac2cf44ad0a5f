#!/usr/bin/env bash
# Telemetry: what the agent writes down, what is made of records and of simulated machines; policies replayed over it.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576

check "a fleet is simulated" "$LOWTIDE" fleet generate fleet --hosts 12 --workloads 5 --duration 6h
check "policies are replayed over it" "$LOWTIDE" fleet replay fleet --price 3 --workloads each.csv --json --output one.json
equals "all that there are" "$(json one.json '[.policies[].policy] | join(" ")')" "age auto promotion"
equals "of every host" "$(json one.json .hosts)" 12
between "for some minutes each" "$(json one.json .rows)" $((12 * 5 * 200)) $((12 * 5 * 361))
equals "nothing was wrong with it" "$(json one.json '[.trouble | .files, .senseless_rows, .repeated_rows, .rows_without_ages] | add')" 0
equals "a saving is worth money" \
  "$(json one.json '[.policies[] | (.money_per_month - 3 * .net_bytes / 1e9) | fabs < 1e-6] | all')" true
equals "and sure within an interval" \
  "$(json one.json '[.policies[] | .saved_interval_percent[0] <= .saved_percent and .saved_percent <= .saved_interval_percent[1]] | all')" true
equals "workloads are reported one by one" "$(wc -l <each.csv)" $((1 + 3 * 12 * 5))
check "on one thread" "$LOWTIDE" fleet replay fleet --price 3 --threads 1 --json --output two.json
check "it is the same to the last digit" cmp one.json two.json
for format in text html svg png csv; do check "it is written as $format" "$LOWTIDE" fleet replay fleet --format $format --output fleet.$format; done
contains "the page explains its figures" "$(<fleet.html)" "Net saving"

check "workloads are grouped by a label" "$LOWTIDE" fleet replay fleet --price 3 --by kind --json --output by.json
equals "and add up" "$(json by.json '([.by.values[].policies[0].had_bytes] | add) / .policies[0].had_bytes | (. - 1 | fabs) < 1e-6')" true
equals "the sum is the same" "$(json by.json .policies)" "$(json one.json .policies)"
"$LOWTIDE" fleet replay fleet --by none --output without.txt
contains "those without are said" "$(<without.txt)" "have no label none"

for age in eager:10s late:2m; do
  printf '[%s.age]\nanon = "%s"\nfile = "%s"\nevery = "10s"\nbrakes = { slowdown = "100%%", pressure = "100%%" }\n' "${age%:*}" "${age#*:}" "${age#*:}"
done >policies.toml
"$LOWTIDE" fleet replay fleet --policy policies.toml --json --output ages.json
equals "a higher age evicts less and refaults less" \
  "$(json ages.json '.policies | .[0].saved_percent > .[1].saved_percent and .[0].back_bytes_per_s > .[1].back_bytes_per_s')" true
printf '[p.pressure]\n' >pressure.toml
"$LOWTIDE" fleet replay fleet --policy pressure.toml 2>err
equals "a policy that cannot be replayed is wrong usage" $? 2
contains "which is said" "$(<err)" "no recording has"

check "settings are searched" "$LOWTIDE" fleet tune fleet --policy promotion --rate 1% --tries 24 --json --output tuned.json
equals "those found stay within the limit" "$(json tuned.json '.tuned.chosen_rate_percent <= 1')" true
equals "and are reported for hosts that were held out" "$(json tuned.json '.tuned.held_out and .hosts < 12')" true
json tuned.json .tuned.toml >tuned.toml
check "they are a policy's file" "$LOWTIDE" fleet replay fleet --policy tuned.toml --output tuned.txt
check "and can be drawn" "$LOWTIDE" fleet tune fleet --policy age --rate 1000% --tries 16 --format html --output tuned.html
# Memory that is idle for two minutes at most refaults every minute somewhere.
"$LOWTIDE" fleet tune fleet --policy age --rate 0% --tries 8 2>err
equals "a limit that none keeps is an error" $? 3
contains "that says what was least" "$(<err)" "the least was"
"$LOWTIDE" fleet tune fleet --policy guard 2>err
equals "so is a policy without settings" $? 2

# An incomplete file, and one that another program wrote.
file=$(find fleet -name '*.parquet' | sort | head -n 1)
truncate -s -100 "$file"
echo nonsense >"${file%/*}/1-2.parquet"
"$LOWTIDE" fleet replay fleet --json --output broken.json
equals "broken files are counted" "$(json broken.json .trouble.files)" 2
"$LOWTIDE" fleet replay fleet --output broken.txt
contains "and said" "$(<broken.txt)" "2 files could not be read"
"$LOWTIDE" fleet replay "$tmp/none" 2>err
equals "a folder that is not there is not found" $? 5
mkdir empty
"$LOWTIDE" fleet replay empty 2>err
equals "one with nothing in it is wrong usage" $? 2
contains "and how to get something is said" "$(<err)" "fleet import"

check "a program is recorded" "$LOWTIDE" run --max-overhead 50% --out record -- "$PATTERN" "$patterns/fixed.toml" --seconds 12
check "a record becomes telemetry" "$LOWTIDE" fleet import records record --host here
check "that is replayed" "$LOWTIDE" fleet replay records --json --output record.json
between "its memory is in it" "$(json record.json '.policies[0].had_bytes | floor')" $((300 * mib)) $((700 * mib))

written="the agent writes down what it sees"
need root "$written" || exit 0
need "cgroup v1" "$written" || exit 0
before=$(kernel_state)
group=/sys/fs/cgroup/memory$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)/lowtide-test-$$
mkdir -p "$group/job"
cat >agent.toml <<EOF
every = "1s"
ages = ["1s", "5s", "10s"]
state_file = "$tmp/state"
[telemetry]
dir = "$tmp/sent"
host = "this"
every = "2s"
labels = { cluster = "test", app = "unknown" }
[[workload]]
cgroup = "**/lowtide-test-$$/job"
policy = "none"
labels = { app = "pattern" }
EOF
# shellcheck disable=SC2016  # expanded by the inner shell
start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group/job" "$PATTERN" "$patterns/fixed.toml" --seconds 300 >/dev/null
program=$started
start "$LOWTIDE" agent --config agent.toml 2>log
agent=$started
resident() { awk '$1 == "RssAnon:" { print $2 * 1024 }' "/proc/$1/status"; }
grown() { [ "$(resident "$program")" -gt $((500 * mib)) ]; }
wait_for 20 grown
some() { [ -n "$(find sent -name '*.parquet' 2>/dev/null)" ]; }
check "$written" wait_for 150 some
kill "$agent"
wait "$agent"
equals "it ends on a signal" $? 0
check "its telemetry is replayed" "$LOWTIDE" fleet replay sent --by app --json --output sent.json
equals "under the workload's own label" "$(json sent.json '[.by.values[].value] | join(" ")')" pattern
"$LOWTIDE" fleet replay sent --by cluster --json --output cluster.json
equals "or that of all" "$(json cluster.json '[.by.values[].value] | join(" ")')" test
between "with the memory that it held" "$(json sent.json '.policies[0].had_bytes | floor')" $((200 * mib)) $((700 * mib))
between "and the idle memory" "$(json sent.json '.policies[0].cold_bytes | floor')" $((100 * mib)) $((560 * mib))
between "nothing was taken" "$(resident "$program")" $((500 * mib)) $((600 * mib))
stop "$program"
rmdir "$group/job" "$group"

# A folder that cannot be written costs telemetry and nothing else.
sed "s|$tmp/sent|/proc/none|" agent.toml >wrong.toml
start "$LOWTIDE" agent --config wrong.toml 2>wrong.log
wait_for 10 grep -q '^started' wrong.log
kill "$started"
wait "$started"
equals "an agent that cannot write ends as it should" $? 0
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
