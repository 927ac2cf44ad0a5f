#!/usr/bin/env bash
# The first number that a person sees, of programs whose use is known and of those that make it hard; and that no limit
# which is pasted kills. The programs run side by side: most of their time they sleep.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1
mib=1048576
need root "the first answer is true" || exit 0
python=/usr/bin/python3
[ -x "$python" ] || { skip "the first answer is true" python3; exit 0; }
phased=$repository/workloads/phased.py

# phased RECORD ARGUMENT...: records the program in the background.
recorders=()
phased() {
  local record=$1
  shift
  start "$LOWTIDE" run --monitor smaps --max-overhead 5% --out "$record" -- "$python" "$phased" "$@" >/dev/null 2>"$record.err"
  recorders+=("$started")
}
answer() { json "$1/summary.json" ".answer.$2"; }
limit_of() { "$LOWTIDE" budget "$1" --no-swap --emit systemd 2>/dev/null | sed -n 's/^MemoryMax=//p'; }
first_line() { "$LOWTIDE" report "$1" | tr '\n' ' '; }

start "$python" "$phased" 200 40 60
running=$started
phased steady 300 50 32 --start 4
phased doubles 200 40 36 --doubles 11
phased workers 100 60 30 --workers 3
phased lingers 100 60 24 --workers 3 --lingers 8
phased grows 200 0 26 --grows
phased short 120 120 3
# shellcheck disable=SC2016  # expanded by the program
start "$LOWTIDE" run --monitor smaps --max-overhead 5% --out late -- sh -c 'sleep 4; exec "$@"' sh "$python" "$phased" 100 60 22 >/dev/null 2>&1
recorders+=("$started")
# shellcheck disable=SC2016  # as above
start "$LOWTIDE" run --monitor smaps --max-overhead 5% --out cut -- sh -c 'echo $$ >program; exec "$@"' sh "$python" "$phased" 150 30 60 >/dev/null 2>&1
cut=$started
start "$LOWTIDE" record --pid "$running" --monitor smaps --max-overhead 5% --duration 25s --out attached >/dev/null 2>&1
recorders+=("$started")
sleep 27
kill -s KILL "$cut"
wait "${recorders[@]}"
wait "$cut" 2>/dev/null
stop "$(cat program)"
stop "$running"
"$LOWTIDE" recover cut >/dev/null 2>&1

between "steady use is what is used" "$(answer steady steady.used_bytes)" $((48 * mib)) $((58 * mib))
between "start-up is what is touched once" "$(answer steady start_up.touched_bytes)" $((295 * mib)) $((325 * mib))
between "and needed where there is no swap" "$(answer steady no_swap_bytes)" $((300 * mib)) $((330 * mib))
between "with swap less will do" "$(answer steady with_swap_bytes)" $((50 * mib)) $((200 * mib))
contains "the terminal says so first" "$(first_line steady)" "Give it $(($(answer steady no_swap_bytes) / mib)) MiB (no swap) or"
# On a busy machine touching 200 MiB takes more than a second: then the start-up was sampled, and may do with less.
between "but not where the start-up may have used all of it over and over" \
  "$(json doubles/summary.json '.answer | (if .start_up.seconds < 1 then .with_swap_bytes else null end) // .no_swap_bytes')" \
  $((120 * mib)) $((230 * mib))
equals "few readings have no interval" "$(answer steady steady.used_low_bytes)" null

between "use that doubles at the end is noticed" "$(answer doubles steady.used_max_bytes)" $((195 * mib)) $((230 * mib))
contains "and no value that was not measured" "$(first_line doubles)" " to 2"
# Four processes use 60 of the same 100 MiB; smaps does not say whether these are the same 60.
between "workers share what they share" "$(answer workers steady.used_bytes)" $((60 * mib)) $((125 * mib))
between "also where they give it back before they exit" "$(answer lingers steady.used_bytes)" $((60 * mib)) $((125 * mib))
between "and hold it once" "$(answer workers steady.resident_bytes)" $((95 * mib)) $((150 * mib))
between "what a program uses while it waits to start is no part of it" "$(answer late steady.used_bytes)" $((58 * mib)) $((68 * mib))
equals "what grows to its end has no steady state" "$(answer grows steady.used_bytes)" null
contains "and that is said" "$(first_line grows)" "never reached a steady state"
between "what ends soon has its peak" "$(answer short no_swap_bytes)" $((120 * mib)) $((140 * mib))
contains "labelled as such" "$(first_line short)" "the peak of this run"
contains "and always something to paste" "$("$LOWTIDE" budget short --emit slurm 2>/dev/null)" "#SBATCH --mem="
between "a target whose start was not recorded gets no less than it held" "$(answer attached no_swap_bytes)" $((200 * mib)) $((230 * mib))
equals "with swap neither" "$(answer attached with_swap_bytes)" null
contains "and that is said" "$(first_line attached)" "start was not recorded"
contains "a record that was cut short says so" "$(first_line cut)" "he record has no end"
between "and no less than was needed" "$(answer cut no_swap_bytes)" $((150 * mib)) $((180 * mib))

# survives NAME RECORD ARGUMENT...: a fresh start of the program under what is pasted for its record.
survives() {
  local name=$1 limit
  limit=$(limit_of "$2")
  shift 2
  check "$name ($limit) does not kill" "$LOWTIDE" run --monitor none --no-swap --limit "${limit}B" --out "limit-$RANDOM" -- "$python" "$phased" "$@"
}
survives "the limit of a steady program" steady 300 50 2 --start 4
survives "of workers" workers 100 60 2 --workers 3
survives "of one that grows" grows 200 0 2 --grows
survives "of one that ends soon" short 120 120 2
