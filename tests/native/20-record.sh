#!/usr/bin/env bash
# `lowtide record`: a process that runs already, a cgroup, the complete system; targets that do not exist.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1
before=$(kernel_state)

"$LOWTIDE" record --pid 4194303 --out gone 2>err
equals "a pid without a process is exit code 5" $? 5
contains "and says so" "$(cat err)" "no such process"
"$LOWTIDE" record --cgroup /no/such/cgroup --out gone 2>err
equals "a cgroup that is not there is exit code 5" $? 5
"$LOWTIDE" record --out gone 2>err
equals "no target is wrong usage" $? 2

if need root "a running process is recorded"; then
  start "$PATTERN" "$patterns/fixed.toml" --seconds 30
  sleep 2
  # Where the machine is busy, one percent does not pay for two walks over 512 MiB within the first second.
  check "a running process is recorded" "$LOWTIDE" record --pid "$started" --max-overhead 5% --duration 6s --out pid
  between "its resident set" "$(json pid/summary.json .memory.rss.peak_bytes)" 536870912 560000000
  between "its working set of one second" "$(median_reading pid 1)" 55000000 80000000
  "$LOWTIDE" record --pid "$started" --out ends 2>err &
  recorder=$!
  sleep 2
  stop "$started"
  check "recording ends with the process" wait_for 5 gone "$recorder"
  equals "and says why" "$(wait "$recorder"; json ends/meta.json .end.reason)" ended
fi

check "the whole system is recorded" "$LOWTIDE" record --system --duration 3s --out system
between "with its memory" "$(json system/summary.json .memory.system_used.peak_bytes)" 10000000 10000000000000
start "$LOWTIDE" record --system --out int
sleep 2
kill -s INT "$started"
check "Ctrl-C ends a recording" wait_for 10 gone "$started"
equals "and the record is finished" "$(json int/meta.json .end.reason)" interrupted

start "$PATTERN" "$patterns/fixed.toml" --seconds 30 >/dev/null
sleep 2
"$LOWTIDE" watch "$started" --count 4 --json >watched 2>err
equals "watch prints a line a second" "$?-$(wc -l <watched)" 0-4
between "with what is resident" "$(jq -s '.[-1].resident_bytes' watched)" $((500 << 20)) $((600 << 20))
if have root; then
  between "and what is in use" "$(jq -s '[.[].working_set[0].bytes | numbers] | last // 0' watched)" $((50 << 20)) $((80 << 20))
else
  skip "and what is in use" root
fi
stop "$started"
equals "a record was not made" "$(find . -maxdepth 1 -name 'lowtide-*')" ""
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
