#!/usr/bin/env bash
# Budgets from a run, from records, and in others' words.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
# What a refault costs is known: the disk of a busy machine, read at the start of each record, may take a hundred times as long.
export XDG_STATE_HOME=$tmp/state
mkdir -p state/lowtide
echo '{"swap_s":0.00001,"disk_s":0.0001}' >state/lowtide/calibration.json
# What takes longest begins first; each is waited for where it is needed. Where idle ages are checked, monitoring may take more than
# 1 % of a CPU: on a busy machine that is too little for a reading over ten seconds.
# Of a start-up slow enough to read what it uses.
start "$LOWTIDE" run --max-overhead 20% --out slow -- /usr/bin/python3 "$repository/workloads/phased.py" 300 40 18 --start 12 >slow.out 2>slow.err
slow=$started
# Longer than the ten seconds that are needed: where sampling is expensive, the price cap delays it.
start "$LOWTIDE" budget --duration 20s --json --out endless -- "$PATTERN" "$patterns/fixed.toml" --seconds 300 >endless.json 2>endless.err
endless=$started
if have root; then
  # 96 MiB on tmpfs that are not used again: they cannot be evicted.
  start "$LOWTIDE" budget --no-swap --json --out tmpfs -- sh -c 'head -c 96M /dev/zero >"$0" && sleep 11; rm "$0"' "/dev/shm/lowtide-test-$$" >tmpfs.json 2>tmpfs.err
  tmpfs=$started
  # The same locked in memory, or not: with swap the one could go. So slow that a reading that a busy machine makes late holds little.
  idle='import ctypes, mmap, sys, time
size = 96 << 20
memory = mmap.mmap(-1, size)
for part in range(12):
    memory.write(bytes(size // 12))
    time.sleep(1)
if sys.argv[1] == "locked":
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    sys.exit(1) if ctypes.CDLL(None).mlock(ctypes.c_void_p(at), ctypes.c_size_t(size)) else None
time.sleep(20)'
  for kind in locked free; do start "$LOWTIDE" run --max-overhead 20% --out "$kind" -- /usr/bin/python3 -c "$idle" "$kind" >"$kind.out" 2>"$kind.err"; done
  recorders=("${all_started[@]: -2}")
fi
"$LOWTIDE" budget --json --out first -- "$PATTERN" "$patterns/fixed.toml" --seconds 12 >first.json 2>err
equals "a program is measured and its budgets reported" $? 0
of() { json "$1" ".budgets[] | select(.mechanism == \"$2\") | .bytes"; }
between "App-MaxRSS is what it ever touched" "$(of first.json app-maxrss)" $((510 * mib)) $((530 * mib))
own=$(of first.json lowtide)
between "lowtide's is what it uses" "$own" $((60 * mib)) $((530 * mib))
# Swap is counted on only where it is active.
answer() { json "$1/summary.json" ".answer.$2"; }
if swapon --noheadings --show | grep -q .; then
  skip "without swap, what is pasted is no less than what cannot be reclaimed" "a machine without swap"
else
  pasted=$("$LOWTIDE" budget first --emit systemd 2>/dev/null | sed -n 's/^MemoryMax=\([0-9]*\)M$/\1/p')
  between "without swap, what is pasted is no less than what cannot be reclaimed" "$((pasted * mib))" $((512 * mib)) $((540 * mib))
  for line in "$(answer first no_swap_bytes)" "$(json first/summary.json .budget.lowtide_bytes)" "$own" \
    "$(($("$LOWTIDE" budget first --emit slurm 2>/dev/null | sed -n 's/^#SBATCH --mem=\([0-9]*\)M$/\1/p') * mib))" \
    "$(($("$LOWTIDE" budget first --emit kubernetes 2>/dev/null | sed -n 's/^    memory: \([0-9]*\)Mi$/\1/p' | head -n 1) * mib))"; do
    equals "and the same number everywhere" "$line" "$((pasted * mib))"
  done
  contains "in the terminal" "$("$LOWTIDE" report first)" "Give it $pasted MiB"
  contains "in the budget" "$("$LOWTIDE" budget first 2>/dev/null)" "Give it $pasted MiB"
  contains "and on the page" "$(<first/report.html)" "Give it $pasted MiB"
fi
wait "$slow"
between "with swap that was asked for, it may be less" \
  "$("$LOWTIDE" budget slow --with-swap 64M --emit slurm 2>/dev/null | sed -n 's/^#SBATCH --mem=\([0-9]*\)M$/\1/p')" 230 280
equals "a record gives the same" "$(of <("$LOWTIDE" budget first --json) lowtide)" "$own"
between "without swap what is idle stays" "$(of <("$LOWTIDE" budget first --no-swap --json) lowtide)" $((500 * mib)) $((540 * mib))
cp -r first second
"$LOWTIDE" budget first second first >both
contains "several records are reported one by one" "$(<both)" "Record by record"
equals "and each once" "$(grep -cE '(first|second) +- ' both)" 2
contains "a unit's drop-in" "$("$LOWTIDE" budget first --emit systemd)" "MemoryMax="
contains "a batch script's line" "$("$LOWTIDE" budget first --emit slurm)" "#SBATCH --mem="
contains "a container's resources, without swap" "$("$LOWTIDE" budget first --emit kubernetes)" "without swap"
"$LOWTIDE" budget -- sh -c 'exit 7' >out 2>err
equals "a program that fails has no budget" $? 7
contains "and it is said why" "$(<err)" "ended with exit code 7"
wait "$endless"
equals "a program that never ends is ended" $? 0
between "and has a budget" "$(of endless.json lowtide)" $((60 * mib)) $((530 * mib))
"$LOWTIDE" budget endless --verify >out 2>err
equals "but no time that could be compared" $? 2
between "fast memory has a price of its own" "$(of <("$LOWTIDE" budget first --slow-tier 1us --json) lowtide)" 1 "$own"
if have root; then
  wait "$tmpfs"
  between "what lies on tmpfs stays without swap" "$(of tmpfs.json lowtide)" $((96 * mib)) $((130 * mib))
  wait "${recorders[@]}"
  of_swap() { of <("$LOWTIDE" budget "$1" --with-swap 1G --slowdown 20% --json 2>/dev/null) lowtide; }
  between "locked memory stays with it, too" "$(of_swap locked)" $((96 * mib)) $((130 * mib))
  between "which what is idle need not" "$(of_swap free)" 1 $((60 * mib))
else
  skip "what lies on tmpfs stays without swap" root
  skip "locked memory stays with it, too" root
  skip "which what is idle need not" root
fi
"$LOWTIDE" budget nothing >out 2>err
equals "what is no record is refused" $? 5
"$LOWTIDE" budget --slowdown 0% first >out 2>err
equals "so is a slowdown that makes no sense" $? 2
"$LOWTIDE" budget >out 2>err
equals "and nothing to measure" $? 2

names=("a budget is verified by runs under it" "and is reported as verified from then on" "one too small to start in is no crash")
if need root "${names[@]}"; then
  "$LOWTIDE" budget first --no-swap --verify --runs 1 --json >verify.json 2>err
  # With one pair of runs, a busy machine may judge the first too slow: a larger one is searched for then.
  equals "${names[0]}" "$(json verify.json '[.verify.tried[] | select(.mechanism == "lowtide") | .holds] | any')" true
  contains "${names[1]}" "$("$LOWTIDE" budget first --no-swap --emit systemd)" "verified by runs under it"
  check "and drawn" grep -q "Run under each budget" first/budget.html
  chmod 755 "$tmp" && install -d -o nobody own
  setpriv --reuid nobody --regid nogroup --clear-groups -- env XDG_RUNTIME_DIR="$tmp/own" \
    "$LOWTIDE" budget first --verify >out 2>err
  equals "without the right to set limits, that is said at once" $? 4
  contains "with the fix" "$(<err)" "run it as root"
  "$LOWTIDE" run --limit 256K --out tiny -- "$PATTERN" "$patterns/fixed.toml" --seconds 3 >out 2>err
  equals "${names[2]}" $? 137

  if have "cgroup v1"; then
    mount=$(memory_mount)
    group=$(memory_cgroup)/lowtide-test-$$
    mkdir "$mount$group"
    # shellcheck disable=SC2016  # expanded by the inner shell
    start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$mount$group" "$PATTERN" "$patterns/fixed.toml" --seconds 120 >/dev/null
    program=$started
    start "$LOWTIDE" budget --watch --cgroup "${group#/}" --every 10s --json --state state.json --listen 127.0.0.1:9468 >lines 2>err
    watching=$started
    check "a running cgroup gets a recommendation" wait_for 40 grep -q budget_bytes lines
    budget=$(tail -1 lines | jq '.cgroups[0].budget_bytes | floor')
    between "that holds what it has used" "$budget" $((60 * mib)) $((600 * mib))
    contains "as a metric, too" "$(curl -s http://127.0.0.1:9468/metrics)" "lowtide_budget_recommended_bytes{cgroup=\"$group\"}"
    stop "$watching"
    check "what was learnt is kept" jq -e 'length == 1' state.json
    stop "$program"
    wait_for 10 rmdir "$mount$group"
  else
    skip "a running cgroup gets a recommendation" "cgroup v1"
  fi
fi
