#!/usr/bin/env bash
# `make test`: format, lints, all tests. Ends with one line, `N passed, N failed, N skipped`, and fails if any failed; before it
# are the ten that took longest. `make test QUICK=1`: format, lints and Rust tests only.
#
# What it runs, each counted:
#   cargo fmt --check and cargo clippy      one test each
#   cargo test --workspace                  the counts of its "test result:" lines; ignored tests are skipped ones. A
#                                           test that finds out only when it runs that it cannot run here prints
#                                           `skip - NAME: needs CAPABILITY` and returns
#   tests/native/*.sh, as root              their lines `ok - `, `not ok - ` and `skip - ` (see tests/native/lib.sh)
#   vm/test.sh                              the same. It runs beside cargo test and the native tests, in what time of the
#                                           CPUs they leave: they mostly wait, and guests have a clock of their own
#
# Programs are built for release beside cargo test; guests begin when that is done. They are not optimised across crates, which
# takes one CPU for minutes while nothing else can begin. Nothing waits for clippy: it runs in what time of the CPUs all of that
# leaves, which is most of them while the last native tests wait.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# Machines of continuous integration ask for colours, which would have to be taken out again before counting.
export CARGO_TERM_COLOR=never

# The tests run elsewhere, so this must not depend on the folder.
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
passed=0
times=() # seconds and name
failures=()
skips=()
declare -A running=() # process groups
log=$(mktemp "${TMPDIR:-/tmp}/lowtide-make-test.XXXXXX")
vm_log=$log.vm
clippy_log=$log.clippy
built=$log.built # is there once the programs are

interrupted() {
  local group
  trap - INT TERM HUP
  for group in "${!running[@]}"; do kill -s TERM -- "-$group" 2>/dev/null || true; done
  wait "${!running[@]}" 2>/dev/null || true
  exit 130
}
trap 'rm -f -- "$log" "$vm_log" "$clippy_log" "$built"' EXIT
trap interrupted INT TERM HUP

# begin LOG SECONDS COMMAND...: starts it with its output in LOG, as the process group $begun, so that all of it can be stopped.
# Not a pipe into tee: a process that the command leaves behind would hold the pipe open for ever.
begin() {
  local into=$1 limit=$2
  shift 2
  : >"$into"
  set -m
  timeout --kill-after=20 "$limit" "$@" >"$into" 2>&1 </dev/null &
  begun=$!
  set +m
  running[$begun]=
}

# follow GROUP LOG: shows the output as it comes, and returns the command's status (124: it took too long).
follow() {
  local tail status=0
  tail -n +1 -s 0.2 -f --pid="$1" "$2" &
  tail=$!
  wait "$1" || status=$?
  unset "running[$1]"
  wait "$tail" || true
  return "$status"
}

# run NAME SECONDS COMMAND...: shows the command's output, keeps it in $log, and returns its status.
run() {
  local name=$1 limit=$2 since=$SECONDS status=0
  shift 2
  printf '\n== %s\n' "$*"
  begin "$log" "$limit" "$@"
  follow "$begun" "$log" || status=$?
  times+=("$((SECONDS - since)) $name")
  return "$status"
}

# What failed so far, in full, for whoever comes when the terminal is gone.
kept=
keep_if_more_than() {
  [ ${#failures[@]} -gt "$1" ] || return 0
  [ -n "$kept" ] || kept=$(mktemp "${TMPDIR:-/tmp}/lowtide-make-test-failed.XXXXXX")
  { printf 'FAILED: %s\n' "${failures[@]:$1}" && cat -- "$log"; } >>"$kept"
}

ended() {
  case $1 in
    124) echo "took too long" ;;
    137) echo "killed, or took too long" ;;
    *) echo "status $1" ;;
  esac
}

# A check that counts as one test.
one() {
  local status=0
  run "$@" || status=$?
  counted_as_one "$1" "$status"
}

counted_as_one() { # NAME STATUS
  local before=${#failures[@]}
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failures+=("$1: $(ended "$2")"); fi
  keep_if_more_than "$before"
}

# sum PATTERN: adds up the numbers that sed's PATTERN finds in the log.
sum() { sed -nE "s/$1/\\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }

cargo_tests() {
  local status=0 count programs reported name
  run "cargo test" 1800 cargo test --workspace --locked --no-fail-fast -- --show-output || status=$?
  local before=${#failures[@]}
  count=$(sum '^test result: .* ([0-9]+) passed;.*')
  passed=$((passed + count))
  while IFS= read -r name; do failures+=("$name"); done \
    < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log")
  # The counts decide; names are lost where a test wrote between the two halves of its line.
  count=$(sum '^test result: .* ([0-9]+) failed;.*')
  while [ ${#failures[@]} -lt $((before + count)) ]; do failures+=("cargo test: a test, see above"); done
  # ignored, with the reason that #[ignore = "needs ..."] gives
  while IFS= read -r name; do skips+=("$name"); done \
    < <(sed -nE 's/^test (.*) \.\.\. ignored(, )?(.*)$/\1: \3/p' "$log" | sed 's/: $/: needs to be asked for by name/')
  # libtest knows no skipping at run time and counted these as passed.
  while IFS= read -r name; do
    skips+=("$name")
    passed=$((passed - 1))
  done < <(sed -n 's/^skip - //p' "$log")
  # A test program that dies before its result line is one failure; so is code that does not compile.
  programs=$(grep -cE '^ +(Running|Doc-tests) ' "$log" || true)
  reported=$(grep -c '^test result: ' "$log" || true)
  if [ "$reported" -lt "$programs" ]; then
    failures+=("cargo test: $((programs - reported)) test programs died")
  elif [ "$status" -ne 0 ] && ! grep -q '^test result: FAILED' "$log"; then
    failures+=("cargo test: $(ended "$status")")
  fi
  keep_if_more_than "$before"
}

# counted SCRIPT STATUS: what the lines in $log say of a script that ended so.
counted() {
  local script=$1 status=$2 count reported name before=${#failures[@]}
  count=$(grep -c '^ok - ' "$log" || true)
  passed=$((passed + count))
  # With the first detail, if there is one: the rest of the output may be gone by the time that someone reads the end of it.
  while IFS= read -r name; do failures+=("$script: $name"); done \
    < <(awk '/^not ok - / { if (n) print n; n = substr($0, 10); next }
      n { print /^# / ? n " (" substr($0, 3) ")" : n; n = "" }
      END { if (n) print n }' "$log")
  while IFS= read -r name; do skips+=("$script: $name"); done < <(sed -n 's/^skip - //p' "$log")
  reported=$(grep -cE '^(ok|not ok|skip) - ' "$log" || true)
  if [ "$reported" -eq 0 ]; then
    failures+=("$script: reported nothing, $(ended "$status")")
  elif [ "$status" -ne 0 ] && ! grep -q '^not ok - ' "$log"; then
    failures+=("$script: $(ended "$status")")
  fi
  # The guests' tests say themselves how long they took.
  while IFS= read -r name; do times+=("$name"); done \
    < <(sed -nE 's/^# ([^ ]+) on ([^ ]+) took ([0-9]+) s$/\3 \1 on \2/p' "$log")
  keep_if_more_than "$before"
}

native_tests() {
  local as_root=() script status
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
  if "${as_root[@]}" true; then ensure_command jq jq || true; fi
  for script in tests/native/*.sh; do
    [ "$script" != tests/native/lib.sh ] || continue
    if ! "${as_root[@]}" true; then
      skips+=("$script: needs root, or sudo without a password")
      continue
    fi
    status=0
    run "$script" 300 "${as_root[@]}" env LOWTIDE="$target/release/lowtide" PATTERN="$target/release/pattern" "$script" || status=$?
    counted "$script" "$status"
  done
}

# collect TITLE GROUP LOG: shows what begin() started beside the rest, from then on, keeps its output in $log, and returns its status.
collect() {
  local status=0
  printf '\n== %s\n' "$1"
  follow "$2" "$3" || status=$?
  mv -- "$3" "$log"
  return "$status"
}

vm_tests() {
  local status=0
  collect "cargo build --release; vm/test.sh" "$vm" "$vm_log" || status=$?
  counted vm/test.sh "$status"
}

clippy_beside() {
  local status=0
  collect "cargo clippy" "$clippy" "$clippy_log" || status=$?
  counted_as_one "cargo clippy" "$status"
}

# What guests are made of is fetched and unpacked meanwhile; vm/test.sh waits for it where it is not done by then.
prepare_guests() {
  local kernel
  for kernel in 6.12 newest 6.1; do vm/run --kernel "$kernel" --prepare || true; done
}
if [ -z "${QUICK:-}" ]; then prepare_guests >/dev/null 2>&1 </dev/null & fi

ensure_toolchain
# Before anything is built: rustup changes the toolchain.
ensure_component fmt rustfmt || true
ensure_component clippy clippy || true
if [ -z "${QUICK:-}" ]; then
  # No test runs the benchmarks' programs.
  # shellcheck disable=SC2016  # expanded there
  begin "$vm_log" 4500 env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    bash -c 'cargo build --release --locked -p lowtide -p lowtide-pattern --bins &&
    echo "# release-build on this-machine took $SECONDS s" && touch "$1" && exec chrt --idle 0 vm/test.sh' - "$built"
  vm=$begun
fi
if ensure_component fmt rustfmt; then
  one "cargo fmt" 120 cargo fmt --all --check
else
  failures+=("cargo fmt: rustfmt is missing")
fi
clippy=
if ensure_component clippy clippy; then
  # In a folder of its own, as cargo test and the Python package's test lock theirs.
  begin "$clippy_log" 4500 env CARGO_TARGET_DIR="$target/clippy" \
    chrt --idle 0 cargo clippy --workspace --all-targets --locked -- -D warnings
  clippy=$begun
else
  failures+=("cargo clippy: clippy is missing")
fi
cargo_tests
if [ -z "${QUICK:-}" ]; then
  while [ ! -e "$built" ] && kill -0 "$vm" 2>/dev/null; do sleep 1; done
  [ ! -e "$built" ] || native_tests
  vm_tests
fi
[ -z "$clippy" ] || clippy_beside

printf '\nthe longest, seconds:\n'
printf '%s\n' "${times[@]}" | sort -rn | head -n 10 | sed 's/^/  /'
echo
for name in "${skips[@]}"; do echo "skipped: $name"; done
for name in "${failures[@]}"; do echo "FAILED: $name"; done
[ -z "$kept" ] || echo "what they printed: $kept"
echo "$passed passed, ${#failures[@]} failed, ${#skips[@]} skipped"
[ ${#failures[@]} -eq 0 ]
