#!/bin/bash
# Runs the tests named on the command line one after another in the guest, each in at most $1 seconds. Their report lines
# (`ok - `, `not ok - `, `skip - `) go out as they are; so does what else they print, which is detail.

limit=$1
shift
export LOWTIDE=/usr/local/bin/lowtide PATTERN=/usr/local/bin/pattern
log=/run/test-log
failed=0

not_ok() {
  printf 'not ok - %s\n' "$1"
  failed=1
}

for test in "$@"; do
  name=${test##*/}
  printf '# %s\n' "$name"
  SECONDS=0
  dmesg --clear
  # Not a pipe: what a test leaves behind would hold it open. Only the time limit's own group is ended with it.
  # Appended to: what an earlier test left behind must not write over it.
  : >"$log"
  timeout --kill-after=10 "$limit" bash "$test" >>"$log" 2>&1 </dev/null &
  running=$!
  tail -n +1 -s 0.2 -f --pid="$running" "$log"
  wait "$running"
  status=$?
  printf '# %s took %s s\n' "$name" "$SECONDS"
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    not_ok "$name: took longer than $limit s"
  elif grep -q '^not ok - ' "$log"; then
    failed=1
  elif [ "$status" -ne 0 ]; then
    not_ok "$name: status $status"
  elif ! grep -qE '^(ok|skip) - ' "$log"; then
    not_ok "$name: reported nothing"
  fi
  # A guest whose kernel went wrong may still pass tests; what it says from here on is worth nothing.
  if fault=$(dmesg | grep -m1 -F -f /vm/kernel-faults); then
    not_ok "$name: the kernel failed: $fault"
    exit 1
  fi
done
exit "$failed"
