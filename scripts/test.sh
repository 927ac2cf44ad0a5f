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
#   vm/test.sh, if it is there              the same

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
running=
log=$(mktemp "${TMPDIR:-/tmp}/lowtide-make-test.XXXXXX")

interrupted() {
  trap - INT TERM HUP
  if [ -n "$running" ]; then
    kill -s TERM -- "-$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
  fi
  exit 130
}
trap 'rm -f -- "$log"' EXIT
trap interrupted INT TERM HUP

# run NAME SECONDS COMMAND...: shows the command's output as it comes, keeps it in $log, and returns its status (124: it took
# too long). Not a pipe into tee: a process that the command leaves behind would hold the pipe open for ever. In a
# process group of its own, so that all of it can be stopped.
run() {
  local name=$1 limit=$2 tail status=0 begun=$SECONDS
  shift 2
  printf '\n== %s\n' "$*"
  : >"$log"
  set -m
  timeout --kill-after=20 "$limit" "$@" >"$log" 2>&1 </dev/null &
  running=$!
  set +m
  tail -n +1 -s 0.2 -f --pid="$running" "$log" &
  tail=$!
  wait "$running" || status=$?
  running=
  wait "$tail" || true
  times+=("$((SECONDS - begun)) $name")
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
  local name=$1 limit=$2 status=0 before=${#failures[@]}
  shift 2
  run "$name" "$limit" "$@" || status=$?
  if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else failures+=("$name: $(ended "$status")"); fi
  keep_if_more_than "$before"
}

# sum PATTERN: adds up the numbers that sed's PATTERN finds in the log.
sum() { sed -nE "s/$1/\\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }

cargo_tests() {
  local status=0 count begun reported name
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
  begun=$(grep -cE '^ +(Running|Doc-tests) ' "$log" || true)
  reported=$(grep -c '^test result: ' "$log" || true)
  if [ "$reported" -lt "$begun" ]; then
    failures+=("cargo test: $((begun - reported)) test programs died")
  elif [ "$status" -ne 0 ] && ! grep -q '^test result: FAILED' "$log"; then
    failures+=("cargo test: $(ended "$status")")
  fi
  keep_if_more_than "$before"
}

# A script that reports by lines: `reporting SECONDS SCRIPT`.
reporting() {
  local limit=$1 script=$2 status=0 count reported name before=${#failures[@]}
  run "$script" "$limit" "${as_root[@]}" env LOWTIDE="$target/release/lowtide" PATTERN="$target/release/pattern" "$script" ||
    status=$?
  count=$(grep -c '^ok - ' "$log" || true)
  passed=$((passed + count))
  while IFS= read -r name; do failures+=("$script: $name"); done < <(sed -n 's/^not ok - //p' "$log")
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

real_kernel_tests() {
  local scripts=() script status=0
  for script in tests/native/*.sh; do
    [ "$script" != tests/native/lib.sh ] && [ -e "$script" ] && scripts+=("$script")
  done
  [ ${#scripts[@]} -gt 0 ] || [ -e vm/test.sh ] || return 0
  run "release build" 1200 cargo build --release --locked --workspace --bins || status=$?
  if [ "$status" -ne 0 ]; then
    failures+=("release build: $(ended "$status")")
    return 0
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
  if as_root true; then
    ensure_command jq jq || true
    for script in "${scripts[@]}"; do reporting 300 "$script"; done
  else
    for script in "${scripts[@]}"; do skips+=("$script: needs root, or sudo without a password"); done
  fi
  # A virtual machine needs no root outside of it.
  as_root=()
  if [ -e vm/test.sh ]; then reporting 3300 vm/test.sh; fi
}

# What guests are made of is fetched and unpacked meanwhile; vm/test.sh waits for it where it is not done by then.
prepare_guests() {
  local kernel
  for kernel in 6.12 newest; do vm/run --kernel "$kernel" --prepare || true; done
}
if [ -z "${QUICK:-}" ] && [ -e vm/run ]; then prepare_guests >/dev/null 2>&1 </dev/null & fi

ensure_toolchain
if ensure_component fmt rustfmt; then
  one "cargo fmt" 120 cargo fmt --all --check
else
  failures+=("cargo fmt: rustfmt is missing")
fi
if ensure_component clippy clippy; then
  one "cargo clippy" 1200 cargo clippy --workspace --all-targets --locked -- -D warnings
else
  failures+=("cargo clippy: clippy is missing")
fi
cargo_tests
[ -n "${QUICK:-}" ] || real_kernel_tests

printf '\nthe longest, seconds:\n'
printf '%s\n' "${times[@]}" | sort -rn | head -n 10 | sed 's/^/  /'
echo
for name in "${skips[@]}"; do echo "skipped: $name"; done
for name in "${failures[@]}"; do echo "FAILED: $name"; done
[ -z "$kept" ] || echo "what they printed: $kept"
echo "$passed passed, ${#failures[@]} failed, ${#skips[@]} skipped"
[ ${#failures[@]} -eq 0 ]
