#!/usr/bin/env bash
# The guest is what the other tests take it for, and lowtide starts in it.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"

contains "lowtide --version runs" "$("$LOWTIDE" --version 2>&1)" "lowtide "

for operations in vaddr paddr; do
  if need "DAMON $operations" "DAMON offers $operations"; then ok "DAMON offers $operations"; fi
done

if need "cgroup v2" "a memory cgroup counts"; then
  group=/sys/fs/cgroup/smoke
  mkdir "$group"
  # shellcheck disable=SC2016  # expanded by the inner shell
  peak=$(sh -c 'echo $$ >"$1/cgroup.procs"; head -c 50M /dev/zero | tail -n 1 | wc -c >"$2"; cat "$1/memory.peak"' \
    sh "$group" "$tmp/bytes")
  rmdir "$group"
  between "a memory cgroup counts" "$peak" $((50 << 20)) $((200 << 20))
fi

if need PSI "memory pressure is reported"; then
  check "memory pressure is reported" grep -q '^full avg10=.* total=[0-9]' /proc/pressure/memory
fi

if need DAMON "the TLB flusher runs"; then
  # A guard of the rig: without the TLB flusher the emulator hides accesses (see vm/guest/flusher.c).
  if pgrep -x flusher >/dev/null; then ok "the TLB flusher runs"; else not_ok "the TLB flusher runs"; fi
fi
