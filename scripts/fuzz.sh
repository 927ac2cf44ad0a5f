#!/usr/bin/env bash
# Fuzzes all that others write: `scripts/fuzz.sh [SECONDS] [TARGET]...`, by default each target of fuzz/src/main.rs for 60 s.
# An input that takes more than a second or 256 MiB, or on which lowtide panics, is kept in $CARGO_TARGET_DIR/fuzz/TARGET, and
# is a failure. What raises coverage is kept in $CARGO_TARGET_DIR/fuzz-corpus for the next time. Prints the executions of each.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
ensure_command g++ g++ || fail "libFuzzer needs a C++ compiler"
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
seconds=${1:-60}
[ $# -eq 0 ] || shift
# Each is a line of TARGETS: `    ("NAME", function),`.
mapfile -t all < <(sed -n 's/^    ("\([a-z]*\)", [a-z_]*),$/\1/p' fuzz/src/main.rs)
[ $# -gt 0 ] || set -- "${all[@]}"

# Coverage by LLVM alone, so that the stable compiler does; --target, so that build scripts are not instrumented.
coverage="-Cpasses=sancov-module -Ccodegen-units=1 --cfg fuzzing"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  coverage+=" -Cllvm-args=-sanitizer-coverage-$option"
done
host=$(rustc -vV | sed -n 's/^host: //p')
# The versions of the release; libFuzzer comes to them.
cp Cargo.lock fuzz/Cargo.lock
RUSTFLAGS=$coverage cargo build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$target/fuzz-build"
cargo build --release --locked --package lowtide

# What is in the repository already is not kept twice.
seeds() {
  mkdir -p "$1"
  case ${1##*/} in
    record) cp crates/record/tests/arrow/* "$1" ;;
    config) cp workloads/agents/*.toml packaging/systemd/agent.toml "$1" ;;
    kernel) find crates/kernel/tests/fixtures -type f -size -8k | while IFS= read -r file; do cp "$file" "$1/$(tr / - <<<"$file")"; done ;;
    telemetry) "$target/release/lowtide" --quiet fleet generate "$TMPDIR/fleet" --hosts 1 --duration 10m --workloads 2 && find "$TMPDIR/fleet" -type f -exec cp -t "$1" {} + ;;
    *) cp "fuzz/corpus/${1##*/}"/* "$1" ;;
  esac
}

work=$(mktemp -d /dev/shm/lowtide-fuzz.XXXXXX)
trap 'rm -rf -- "$work"' EXIT
export TMPDIR=$work
failed=0
for name; do
  seeds "$work/seeds/$name"
  kept=$target/fuzz-corpus/$name
  mkdir -p "$kept" "$target/fuzz/$name"
  status=0
  LOWTIDE_FUZZ=$name "$target/fuzz-build/$host/release/lowtide-fuzz" "$kept" "$work/seeds/$name" -max_total_time="$seconds" \
    -max_len=65536 -timeout=1 -rss_limit_mb=256 -artifact_prefix="$target/fuzz/$name/" -print_final_stats=1 \
    -verbosity=0 >"$work/log" 2>&1 || status=$?
  printf '%s: %s executions' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")"
  if [ "$status" -eq 0 ]; then
    printf '\n'
  else
    printf ', FAILED:\n'
    tail -n 30 "$work/log"
    failed=1
  fi
done
exit "$failed"
