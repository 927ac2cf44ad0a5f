#!/usr/bin/env bash
# Operation schemes on real programs: what is idle is paged out, what is in use stays, and nothing is left behind.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
before=$(kernel_state)

# --- the language
check "a scheme is said in words" "$LOWTIDE" schemes check prcl
"$LOWTIDE" schemes check prcl-tuned --format toml >tuned.toml
equals "what is printed as TOML reads back as the same line" \
  "$("$LOWTIDE" schemes check tuned.toml --format line)" "64K null null 0 2s null pageout"
printf '# mine\n4K null null 5 5s null pagout\n' >bad
"$LOWTIDE" schemes check bad 2>err
equals "a mistake is wrong usage" $? 2
contains "and named with its place and what would be right" "$(<err)" "bad:2:24: 'pagout' is no action; there are willneed"
"$LOWTIDE" schemes check nothing-of-that-name 2>err
equals "a scheme that is not there is not found" $? 5
contains "and those that are built in are named" "$(<err)" "ethp, prcl"
"$LOWTIDE" run --swap zram:lots -- true 2>err
equals "a swap that makes no sense is wrong usage" $? 2

# --- on programs
need root "schemes are applied" || exit 0
if ! [ -e /sys/class/zram-control/hot_add ] && ! modprobe zram 2>/dev/null; then
  skip "schemes are applied" zram
  exit 0
fi
if ! have "a free DAMON"; then
  "$LOWTIDE" run --scheme ethp --out refused -- touch ran 2>err
  equals "an impossible scheme is exit code 3" $? 3
  contains "and the reason is said" "$(<err)" "lowtide itself has no action hugepage"
  check "before anything is started" test ! -e ran
fi

cat >lines <<'E2'
64K null null 0 2s null pageout
E2
acted() { "$LOWTIDE" run --swap zram:1G --max-overhead 5% --out "$1" "${@:2}" >out 2>err; }
check "a program is run with a scheme" acted fixed --scheme lines -- "$PATTERN" "$patterns/fixed.toml" --seconds 25
applied=$(json fixed/meta.json '.schemes[0].applied_bytes')
between "what is idle is paged out" "$applied" $((300 * mib)) $((700 * mib))
between "used memory hardly refaults" "$(json fixed/meta.json '.schemes[0].returned_bytes // 0')" 0 $((100 * mib))
# Not the last reading: the program frees its memory before it ends.
late=$("$LOWTIDE" report fixed timeline --format json | jq '[.[] | select(.t_s < 23 and .rss_bytes != null)][-1].rss_bytes')
between "little more than what is in use is left at the end" "$late" $((60 * mib)) $((250 * mib))
ledger() { json "$1/summary.json" ".ledger.$2"; }
saved=$(ledger fixed saved_anon_bytes)
between "the ledger has the saving" "$saved" $((50 * mib)) $((450 * mib))
between "and that it is less than that net" "$(ledger fixed net_bytes)" 1 "$saved"
contains "and the page shows it" "$(<fixed/report.html)" "What each scheme did"
check "what was done is in the record" test "$("$LOWTIDE" report fixed --format csv | grep -c ledger.schemes)" -gt 0

pattern_of all.toml 128M 128M 30 5
check "a program that uses all of its memory is run" acted all --scheme lines -- "$PATTERN" all.toml --seconds 10
between "and left alone" "$(json all/meta.json '.schemes[0].returned_bytes // 0')" 0 $((8 * mib))

printf '[[scheme]]\naction = "pageout"\nage = { min = "2s" }\nfilter = [{ type = "anon" }]\n' >files.toml
# Where files fill the machine's memory, the kernel pages out a little of what is idle by itself: not from a cgroup without swappiness.
names=("a filter is applied" "anonymous memory stays where it is spared")
if need "cgroup v1" "${names[@]}"; then
  group=$(memory_mount)$(memory_cgroup)/lowtide-test-$$
  export group
  mkdir "$group" && echo 0 >"$group/memory.swappiness"
  # shellcheck disable=SC2016  # expanded by the inner shell
  check "${names[0]}" sh -c 'echo 0 >"$group/cgroup.procs" && exec "$@"' sh "$LOWTIDE" run --swap zram:1G --max-overhead 5% \
    --scheme files.toml --out files -- "$PATTERN" "$patterns/fixed.toml" --seconds 8
  equals "${names[1]}" "$(json files/summary.json '.memory.swap.peak_bytes')" 0
  wait_for 10 rmdir "$group"
fi

if have "command setpriv"; then
  install -d -o 65534 other && chmod 755 .
  setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_RUNTIME_DIR="$PWD/other" "$LOWTIDE" run --scheme lines --out other/r -- touch other/ran 2>err
  equals "without the right to advise others, schemes are not possible" $? 3
  contains "which is said" "$(<err)" "CAP_SYS_NICE"
  check "before anything is started" test ! -e other/ran
fi

check "a dry run does nothing" acted dry --scheme lines --dry-run -- "$PATTERN" "$patterns/fixed.toml" --seconds 8
equals "nothing at all" "$(json dry/meta.json '.schemes[0].applied_bytes')" 0
check "but counts what it would be tried on" test "$(json dry/meta.json '.schemes[0].tried_bytes')" -gt 0

# Swap that holds an eighth of what could go.
"$LOWTIDE" run --swap zram:64M --max-overhead 5% --scheme lines --out full -- "$PATTERN" "$patterns/fixed.toml" --seconds 12 >out 2>err
equals "a program outlives a swap that is full" $? 0
between "which is not filled to the brim" "$(json full/summary.json '.memory.swap.peak_bytes')" 1 $((64 * mib))

# Locked memory: the kernel will not touch it.
cat >locked.py <<'E2'
import ctypes, mmap, time
memory = mmap.mmap(-1, 64 << 20)
memory[:] = b"x" * len(memory)
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(memory))) == 0
time.sleep(8)
E2
if have "command python3"; then
  check "a program with locked memory is run" acted locked --scheme lines -- python3 locked.py
  between "and keeps it" "$(json locked/meta.json '.schemes[0].applied_bytes')" 0 $((16 * mib))
fi

# Huge pages of what is in use.
if have "command python3" && grep -q '\[madvise\]\|\[always\]' /sys/kernel/mm/transparent_hugepage/enabled; then
  cat >hot.py <<'E2'
import mmap, time
memory = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
end = time.time() + 12
while time.time() < end:
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    time.sleep(0.1)
E2
  check "huge pages are made by lowtide itself" \
    "$LOWTIDE" run --monitor smaps --scheme ethp-tuned --max-overhead 5% --out collapse -- python3 hot.py
  huge=$("$LOWTIDE" report collapse timeline --format json | jq '[.[].huge_bytes // 0] | max')
  # Where files fill the machine's memory, the kernel finds no free huge page for some of it.
  lowest=$((96 * mib - $(json collapse/meta.json '.schemes[0].refused_bytes')))
  between "of what is in use" "$huge" $((lowest > 2 * mib ? lowest : 2 * mib)) $((140 * mib))
fi

check "a target that ends in between does no harm" acted short --scheme lines -- "$PATTERN" "$patterns/fixed.toml" --seconds 4

# On what is running already.
start "$PATTERN" "$patterns/fixed.toml" --seconds 40
program=$started
sleep 3
check "schemes are applied to what is running" \
  "$LOWTIDE" schemes apply lines --pid "$program" --swap zram:1G --max-overhead 5% --duration 12s --out running
between "and act" "$(json running/meta.json '.schemes[0].applied_bytes')" $((30 * mib)) $((700 * mib))
check "whose target lives on without them" kill -0 "$program"
stop "$program"

# Killed.
start "$LOWTIDE" run --swap zram:256M --scheme lines --out killed -- sleep 30
wait_for 10 grep -q zram /proc/swaps
sleep 1
kill -s KILL "$started"
sleep 1
"$LOWTIDE" recover >recovered 2>&1
check "swap is taken away after a crash" test -z "$(comm -13 <(awk '{ print $1 }' <<<"$before" | sort) <(awk '/zram/ { print $1 }' /proc/swaps | sort))"

equals "nothing was left in the kernel" "$(kernel_state)" "$before"
