#!/usr/bin/env bash
# `make package`: the Debian package and the Python wheel (one for every Python from 3.9 on), into $CARGO_TARGET_DIR/package.
# cargo-deb and maturin are built or fetched below that folder; nothing else is installed.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
out=$target/package
tools=$target/package-tools
mkdir -p "$out"

[ -x "$tools/bin/cargo-deb" ] || cargo install --quiet --locked --root "$tools" 'cargo-deb@^3' ||
  fail "cargo-deb cannot be installed: is the registry of crates reached?"
cargo build --release --locked -p lowtide
cargo run --quiet --locked -p lowtide --example manuals -- "$target/release/manuals"
mkdir -p "$target/release/completions"
for shell in bash:lowtide.bash zsh:_lowtide fish:lowtide.fish; do
  "$target/release/lowtide" completions "${shell%%:*}" >"$target/release/completions/${shell#*:}"
done
PATH="$tools/bin:$PATH" cargo deb --quiet --no-build -p lowtide --output "$out/"

ensure_command python3 python3 || fail "python3 is missing"
[ -x "$tools/venv/bin/maturin" ] || { python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" --quiet install 'maturin>=1.7,<2'; } ||
  fail "maturin cannot be installed: python3 with venv (Debian package python3-venv) and an index of Python packages are needed"
"$tools/venv/bin/maturin" build --quiet --release --locked -m python/Cargo.toml -o "$out"
ls -l "$out"
