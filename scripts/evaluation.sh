#!/usr/bin/env bash
# `make evaluation`: the programs of workloads/evaluation.toml in all configurations and under limits, in guests and natively;
# writes docs/evaluation/programs.md and index.html. Many hours, in as many sittings as it takes: what is complete in DIR, of which
# git keeps the results, is not run again.
#
#   scripts/evaluation.sh [--quick] [--out DIR]      DIR: docs/evaluation/runs; with --quick target/evaluation-quick
#
# --quick  a program of each family in three configurations, one kernel, one seed; two of them natively; some 20 minutes. The
#          tables are written to DIR.
#
# Environment:
#   JOBS      guests at a time (2); what runs natively has the machine to itself
#   ONLY      programs, separated by commas (all)
#   PLACES    places, separated by commas (guest-6.12-1 guest-newest-1 guest-6.12-2 guest-newest-2 native-1 ... native-5)
#   CONFIGS   groups of configurations, separated by commas (record, schemes, agents, limits)
#   SUITE     another suite
#   WORK      with --quick, how much of their work programs do in a guest (0.05; natively all of it); else WORK in
#             bench/trials/evaluation.py says that
#   PACED     seconds of programs that work at a fixed rate (60; with --quick 30)
#   MEMORY    of a guest (4G)
#   TIMEOUT   seconds of the host for a guest (14400)
#   LOWTIDE   a binary to use instead of building; pattern, lu, bitrev and blocks are beside it

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

usage='usage: scripts/evaluation.sh [--quick] [--out DIR]'
quick=() out=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=(--quick) ;;
    --out) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }; out=$2; shift ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift
done
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
[ ${#quick[@]} -eq 0 ] || out=${out:-$target/evaluation-quick}
out=$(realpath -m -- "${out:-docs/evaluation/runs}")
suite=${SUITE:-workloads/evaluation.toml}
[ -e "$suite" ] || fail "$suite is missing"

if [ -z "${LOWTIDE:-}" ]; then
  ensure_toolchain
  cargo build --release --locked --workspace --bins
  LOWTIDE=$target/release/lowtide
fi
LOWTIDE=$(realpath -- "$LOWTIDE")
export LOWTIDE
built=$(dirname -- "$LOWTIDE")
[ "${built##*/}" = release ] || fail "$LOWTIDE: vm/run takes programs from a folder named release"
ensure_command python3 python3 >/dev/null || fail "python3 is missing"
COMMIT=unknown
if head=$(git rev-parse --short=7 HEAD 2>/dev/null); then
  # Results that were removed or replaced make no other program.
  if git diff --quiet HEAD -- . ':!docs/evaluation'; then COMMIT=$head; else COMMIT=$head-dirty; fi
fi
COMMAND="make evaluation" paced=${PACED:-60} work=${WORK:-0.05}
[ ${#quick[@]} -eq 0 ] || COMMAND="make evaluation QUICK=1" paced=${PACED:-30}
settings="PACED=$paced"
[ ${#quick[@]} -eq 0 ] || settings="$settings, in guests WORK=$work"
export COMMIT COMMAND

mkdir -p -- "$out"
exec {lock}>"$out/lock"
flock -n "$lock" || fail "$out: another evaluation is running"
evaluation() { python3 bench/trials/evaluation.py "$@"; }
# A unit is a line: place, program, group, configurations, and what its data are called.
units=$(evaluation plan "$out" "$suite" "${quick[@]}")

# shellcheck disable=SC2317  # reached through the trap
end_jobs() {
  local pid
  trap '' INT TERM HUP
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  wait
}
trap end_jobs EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
# supervised COMMAND...: runs a program in the shell of a unit, and ends it before that shell is ended.
supervised() {
  local status=0 child
  "$@" &
  child=$!
  # shellcheck disable=SC2064  # this child
  trap "kill $child 2>/dev/null || ${as_root[*]} kill $child 2>/dev/null; wait $child; exit 143" TERM
  wait "$child" || status=$?
  trap - TERM
  return "$status"
}

# Seeds differ in the order of the runs, in when they begin, and in how large the environment is.
# shellcheck disable=SC2016  # expanded in the guest
guest_script='cd /lowtide || exit
modprobe zram
# A disk in memory that answers in 100 us by the clock of the guest: those of vm/run answer by that of the host. What its file
# system would write later would take memory while programs run.
modprobe null_blk nr_devices=1 gb=3 memory_backed=1 bs=4096 irqmode=2 completion_nsec=100000 &&
  mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0 && mkdir /disk && mount /dev/nullb0 /disk &&
  cp /usr/local/bin/lowtide /disk || exit
# It takes memory: of the large inputs only what the program reads.
for input in /var/tmp/lowtide-workloads/*; do
  case ${input##*/}:$data in
    postgres:pgbench* | sqlite.db:sqlite* | sort.in:sort* | texts:texts | frames.y4m:encode) ;;
    postgres:* | sqlite.db:* | sort.in:* | texts:* | frames.y4m:*) continue ;;
  esac
  cp -a "$input" /disk || exit
done
export LOWTIDE_WORKLOADS=/disk
sleep "0.$((seed * 37))"
# A warm-up of a second does: nothing but the program itself is read from another disk.
[ "$data" = - ] || { workloads/real/program.sh prepare "$data" && PACED=1 WORK=0.001 workloads/real/program.sh run "$data"; } || exit
/disk/lowtide compare --suite unit.toml --configs "$configs" --runs 1 --no-warm-up --seed "$seed" --swap zram:2G $keep --out out
status=$?
uname -r >out/kernel
exit "$status"'
in_guest() { # FOLDER KERNEL SEED SUITE CONFIGS DATA [--keep]
  local program puts=()
  for program in pattern lu bitrev blocks; do
    [ ! -x "$built/$program" ] || puts+=(--put "$built/$program:/lowtide/target/release/$program")
  done
  rm -rf -- "$1"
  CARGO_TARGET_DIR=$(dirname -- "$built") supervised vm/run --image evaluation --kernel "$2" --clock virtual \
    --memory "${MEMORY:-4G}" --timeout "${TIMEOUT:-14400}" --put workloads:/lowtide/workloads --put "$4:/lowtide/unit.toml" \
    "${puts[@]}" --get "/lowtide/out:$1" -- \
    env "PACED=$paced" "WORK=$work" "seed=$3" "configs=$5" "data=$6" "keep=${7:-}" "pad=$(printf "%$((300 * $3))s" '')" \
    sh -c "$guest_script"
}

natively() { # FOLDER SEED SUITE CONFIGS [--keep]: continues a round that was interrupted.
  local status=0
  supervised "${as_root[@]}" env -u WORK "PACED=$paced" "NUMERIC=$built" "$LOWTIDE" compare --suite "$3" --configs "$4" \
    --runs 1 --seed "$2" --swap zram:2G "${@:5}" --out "$1" || status=$?
  [ "$status" -gt 1 ] || uname -r | "${as_root[@]}" tee "$1/kernel" >/dev/null
  return "$status"
}

# unit PLACE PROGRAM GROUP CONFIGS DATA: a unit that is not complete yet. A comparison that was made to its end has a page.
unit() {
  local place=$1 group=$3 folder=$out/$1/$2 seed=${1##*-} status=0 kernel part made suite keep=()
  kernel=${place#*-}
  kernel=${kernel%-*} part=$folder/$group.part made=$folder/$group suite=$folder/$group.toml
  [ "$group" != record ] || keep=(--keep)
  mkdir -p -- "$folder"
  {
    evaluation suite "$out" "$place" "$2" "$group" >"$suite" || return
    case $place in
      guest-*) in_guest "$part" "$kernel" "$seed" "$suite" "$4" "$5" "${keep[@]}" || status=$? ;;
      *) natively "$part" "$seed" "$suite" "$4" "${keep[@]}" || status=$? ;;
    esac
    # Limits are taken from it, which may be in another sitting.
    if [ "$group" = record ]; then
      evaluation budgets "$part/$2-rec-1" | "${as_root[@]}" tee "$part/budgets.json" || "${as_root[@]}" rm -f -- "$part/budgets.json"
    fi
  } >"$made.log" 2>&1 </dev/null
  if [ -s "$part/report.html" ] && [ -s "$part/kernel" ]; then
    printf '{"commit": "%s", "settings": "%s", "kernel": "%s", "date": "%s"}\n' "$COMMIT" "$settings" "$(<"$part/kernel")" \
      "$(date -u +%Y-%m-%dT%H:%MZ)" |
      "${as_root[@]}" tee "$part/done.json" >/dev/null
    find "$part" -mindepth 1 -maxdepth 1 -type d ! -name '*-rec-1' -exec "${as_root[@]}" rm -rf -- {} +
    "${as_root[@]}" rm -rf -- "$made" "$made.failed"
    mv -- "$part" "$made"
    return 0
  fi
  # Kept for whoever looks for the reason; the next attempt starts anew.
  if [ -e "$part" ] && [ "$status" -ne 130 ] && [ "$status" -ne 143 ]; then
    "${as_root[@]}" rm -rf -- "$made.failed"
    mv -- "$part" "$made.failed"
  fi
  return 1
}

# report PLACE PROGRAM GROUP ...: runs the unit, and prints its outcome.
report() {
  local began=$SECONDS outcome=failed
  unit "$@" && outcome=complete
  printf '%s - %s %s %s: %d s\n' "$outcome" "$1" "$2" "$3" $((SECONDS - began))
}

# left PREFIX: the units there that are not complete.
left() {
  local place program group configs data
  while read -r place program group configs data; do
    [[ $place != $1* ]] || [ -e "$out/$place/$program/$group/done.json" ] || echo "$place $program $group $configs $data"
  done <<<"$units"
}

# all_of PLACE PROGRAM: the program's units there, one after the other, as limits come from the record of the first.
all_of() {
  local line
  while read -ra line; do report "${line[@]}"; done <<<"$(left "$1" | grep "^$1 $2 ")"
}

# can_be_had KERNEL: whether there is a guest with it.
can_be_had() {
  local status=0
  vm/run --image evaluation --kernel "$1" --prepare </dev/null || status=$?
  case $status in
    0) return 0 ;;
    69) echo "skip - guests with Linux $1: needs Debian mirror" ;;
    77) echo "skip - guests with Linux $1: needs root, to fill the guests' cache once" ;;
    *) echo "skip - guests with Linux $1: needs a guest that can be prepared (status $status)" ;;
  esac
  return 1
}

guests() {
  local place program kernel
  local -A had=()
  while read -r place program; do
    [ -n "$place" ] || continue
    kernel=${place#guest-}
    kernel=${kernel%-*}
    if [ -z "${had[$kernel]:-}" ]; then
      had[$kernel]=no
      ! can_be_had "$kernel" || had[$kernel]=yes
    fi
    [ "${had[$kernel]}" = yes ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n || true; done
    all_of "$place" "$program" &
  done <<<"$(left guest- | cut -d' ' -f1,2 | uniq)"
  wait
}

native() {
  local place program names
  [ -n "$(left native-)" ] || return 0
  "${as_root[@]}" true || { echo "skip - native: needs root"; return 0; }
  mapfile -t names < <(left native- | awk '$5 != "-" { print $5 }' | sort -u)
  if [ ${#names[@]} -gt 0 ] && ! workloads/real/install.sh "${names[@]}" >"$out/install.log" 2>&1; then
    echo "skip - native: needs the programs' packages; see $out/install.log"
    return 0
  fi
  while read -r place program; do
    all_of "$place" "$program" &
    wait $! || true
  done <<<"$(left native- | cut -d' ' -f1,2 | uniq)"
}

echo "$(wc -l <<<"$units") units, of which $(left '' | wc -l) are left; results are in $out"
guests
native
results=docs/evaluation
[ "$out" = "$(realpath -m -- docs/evaluation/runs)" ] || results=$out
evaluation "$out" "$results"
echo "written: $results/programs.md and $results/index.html"
status=0
while read -r place program group _; do
  [ -n "$place" ] || continue
  if [ -e "$out/$place/$program/$group.log" ]; then
    echo "not complete - $place $program $group: see $out/$place/$program/$group.log"
    status=1
  else
    echo "not run - $place $program $group"
  fi
done <<<"$(left '')"
exit "$status"
