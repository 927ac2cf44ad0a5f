#!/usr/bin/env bash
# Comparisons: rounds, figures, going on after an interruption, and nothing left behind.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
need root "programs are compared" || exit 0
thp=/sys/kernel/mm/transparent_hugepage/enabled
state() { kernel_state; cat "$thp" 2>/dev/null; }
before=$(state)
cat >suite.toml <<'E2'
name = "two"
[[program]]
name = "quick"
setup = "echo before >>log"
command = "echo rate 42; sleep 0.3"
teardown = "echo after >>log"
figure = "rate ([0-9]+)"
[[program]]
name = "failing"
command = "exit 3"
[[config]]
name = "limited"
limit = "64M"
thp = "never"
E2
"$LOWTIDE" compare --suite suite.toml --configs orig,rec,thp,limited --runs 2 --out folder --format json >out.json 2>err
equals "the exit code says that a program failed" $? 1
equals "each program runs in each round and configuration, after a warm-up" \
  "$(json out.json '[.runs[] | select(.program == "quick")] | length')" 9
equals "but for one whose warm-up fails" "$(json out.json '[.runs[] | select(.program == "failing") | .round] | join(" ")')" 0
equals "with its figure" "$(json out.json '[.runs[] | select(.program == "quick") | .figure] | unique | .[]')" 42
equals "set up and cleared before and after each" "$(sort log | uniq -c | awk '{ print $1 $2 }' | paste -sd' ')" "9after 9before"
contains "a failure is said" "$(json out.json '.runs[] | select(.program == "failing") | .failure')" "exit code 3"
equals "there are statistics by configuration" \
  "$(json out.json '[.statistics[] | select(.metric == "runtime") | .config] | join(" ")')" "orig rec thp limited"
between "and intervals of pairs" "$(json out.json '.statistics[] | select(.metric == "runtime" and .config == "rec") | .paired_percent.mean')" -60 60
contains "the page is drawn" "$(<folder/report.html)" "<svg"
contains "Markdown has the totals" "$("$LOWTIDE" compare --suite suite.toml --configs orig,rec,thp,limited --runs 2 --out folder --format markdown 2>err)" "runtime, s, mean"
equals "and nothing is run again for it" "$(wc -l <folder/runs.jsonl)" 10
"$LOWTIDE" compare --suite suite.toml --configs orig --runs 2 --out folder 2>err
equals "a folder of another comparison is wrong usage" $? 2
"$LOWTIDE" compare --runs 2 --out failed -- false 2>err
equals "a program whose warm-up fails is not compared" "$?-$(wc -l <failed/runs.jsonl)" 1-1
"$LOWTIDE" compare --suite nothing.toml 2>err
equals "a suite that is not there is not found" $? 5
"$LOWTIDE" compare --configs fast -- true 2>err
equals "a configuration that is not there is wrong usage" $? 2
contains "and those there are are named" "$(<err)" "orig, rec, thp"

# Interrupted in the middle of a run with another THP mode and swap.
slow() { "$LOWTIDE" compare --configs orig,thp --runs 1 --swap zram:64M --out slow --format csv -- sleep 3; }
if [ -e /sys/class/zram-control/hot_add ] || modprobe zram 2>/dev/null; then
  start "$LOWTIDE" compare --configs orig,thp --runs 1 --swap zram:64M --out slow --format csv -- sleep 3
  comparison=$started
  sleep 4.5
  kill -s INT "$comparison"
  wait "$comparison"
  equals "an interruption ends it" $? 130
  equals "with THP and swap as they were" "$(state)" "$before"
  done=$(wc -l <slow/runs.jsonl)
  between "with the runs that were made" "$done" 1 2
  check "it continues with the missing runs" slow
  equals "each was made once" "$(awk -F'"' '{ print $8 $11 }' slow/runs.jsonl | sort | uniq -d | wc -l)" 0
  equals "all of them" "$(wc -l <slow/runs.jsonl)" 3
else
  skip "an interruption ends it" zram
fi
equals "nothing was left in the kernel" "$(state)" "$before"
