#!/usr/bin/env bash
# `lowtide run`: the program keeps its input, output, exit code and signals; its complete tree is followed; nothing is
# left in the kernel, not even after kill -9.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1
before=$(kernel_state)

run() { "$LOWTIDE" run --monitor "${monitor:-none}" "$@" 2>"$tmp/err"; }

run --out code -- sh -c 'exit 7'
equals "the exit code is the program's" $? 7
run --out signal -- sh -c 'kill -TERM $$'
equals "death by a signal is 128 + its number" $? 143
equals "stdin and stdout are the program's" "$(echo through | run --out pipe -- cat)" through
run --out none -- no-such-command-anywhere
equals "a command that is not found is 127" $? 127
contains "and is said to be" "$(cat err)" "command not found"
equals "and leaves no folder" "$(ls -d none 2>/dev/null)" ""
touch plain
run --out none -- ./plain
equals "a file that is not executable is 126" $? 126
run --out code -- true
equals "a folder that is not empty is refused" $? 1
contains "with what to do" "$(cat err)" "--out"

run --out daemon -- sh -c '(setsid sleep 2 >/dev/null 2>&1 &); exit 3'
equals "a program that leaves a daemon gives its own code" $? 3
between "and is followed until the daemon ends" "$(json daemon/summary.json .runtime_s)" 1.9 10

start "$LOWTIDE" run --monitor none --out int -- sleep 60
sleep 1
kill -s INT "$started"
wait_for 10 gone "$started"
wait "$started"
equals "SIGINT to lowtide reaches the program" $? 130
equals "and the record is finished" "$(json int/summary.json .exit_code)" 130

# shellcheck disable=SC2016  # expanded by the program
start "$LOWTIDE" run --monitor none --out many -- sh -c 'i=0; while [ $i -lt 10000 ]; do /bin/true; i=$((i+1)); done'
wait "$started"
equals "ten thousand short children are survived" $? 0
between "and their faults are counted" "$(json many/summary.json .faults.minor)" 100000 100000000

equals "nothing was left in the kernel" "$(kernel_state)" "$before"

if need root "what a killed lowtide left is taken back"; then
  # shellcheck disable=SC2016  # expanded by the program
  start "$LOWTIDE" run --out killed -- sh -c 'echo $$ >program; exec sleep 30'
  sleep 7
  kill -s KILL "$started"
  sleep 0.2
  program=$(cat program)
  check "the program outlives a killed lowtide" kill -0 "$program"
  check "lowtide recover undoes what was left" "$LOWTIDE" recover killed
  equals "the kernel is as it was" "$(kernel_state)" "$before"
  between "the record reads up to the last seconds" "$(json killed/summary.json .runtime_s)" 2 10
  kill "$program"
fi
announced "doctor names the monitor that a run uses"
