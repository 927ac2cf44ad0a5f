#!/usr/bin/env bash
# A disk that fills up, and a program that changes its address space without pause: the program is not disturbed, what
# could be recorded reads, and nothing is left behind.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1
before=$(kernel_state)

if need root "a full disk"; then
  mkdir small
  mount -t tmpfs -o size=48k tmpfs small
  # shellcheck disable=SC2016  # expanded by the program
  "$LOWTIDE" run --monitor none --interval 50ms --out small/record -- sh -c 'sleep 14; exit 5' 2>err
  equals "the program on a full disk gives its own code" $? 5
  contains "the full disk is said" "$(cat err)" "no space left"
  "$LOWTIDE" report small/record --format json >summary.json 2>>err
  between "what was written before reads" "$(json summary.json .runtime_s)" 2 16
  umount small
fi

if need root "a folder of another user"; then
  mkdir foreign && chown 12345 foreign
  "$LOWTIDE" run --monitor none --out foreign -- true 2>err
  equals "root makes no record in a folder of another user" $? 4
  contains "and the message names its owner" "$(cat err)" "belongs to user 12345"
  equals "nothing is in it" "$(ls -A foreign)" ""
fi

if need "command python3" "violent changes of the address space"; then
  "$LOWTIDE" run --out violent -- python3 "$repository/workloads/violent.py" 8 2>err
  equals "a program that changes its address space violently ends well" $? 0
  between "and was followed to its end" "$(json violent/summary.json .runtime_s)" 7.5 60
  between "with its memory" "$(json violent/summary.json .memory.rss.peak_bytes)" 10000000 1000000000
  equals "by a monitor that did not stop" "$(json violent/meta.json '.notes[] | select(test("stopped"))')" ""
fi
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
