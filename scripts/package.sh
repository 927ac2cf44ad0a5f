#!/usr/bin/env bash
# `make package`: the Debian package and the Python wheel (one for every Python from 3.9 on), into $CARGO_TARGET_DIR/package.
# With the binary comes lowtide.cdx.json, the list of all that is in it (CycloneDX). Two packages of one commit are the same, byte
# for byte, wherever they are built with the same compiler: scripts/reproducible.sh makes two.
# cargo-deb, cargo-cyclonedx and maturin are built or fetched below $PACKAGE_TOOLS ($CARGO_TARGET_DIR/package-tools); nothing
# else is installed.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
out=$target/package
tools=${PACKAGE_TOOLS:-$target/package-tools}
mkdir -p "$out"

for tool in cargo-deb@^3 cargo-cyclonedx@^0.5; do
  [ -x "$tools/bin/${tool%@*}" ] || CARGO_TARGET_DIR=$target/package-tools-build cargo install --quiet --locked --root "$tools" "$tool" ||
    fail "${tool%@*} cannot be installed: is the registry of crates reached?"
done

# No path or time of this build gets into what is built.
export PATH=$tools/bin:$PATH CARGO_TARGET_DIR=$target/package-build
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/lowtide"
export CFLAGS="-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo -ffile-prefix-map=$CARGO_TARGET_DIR=/target"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1)
export SOURCE_DATE_EPOCH
target=$CARGO_TARGET_DIR

cargo build --release --locked -p lowtide
cargo cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --format json --spec-version 1.5 --no-build-deps
sed "s|file://$PWD|file:///lowtide|g" crates/cli/lowtide.cdx.json >"$target/release/lowtide.cdx.json"
# It writes one for each crate.
find bench crates python workloads -maxdepth 2 -name '*.cdx.json' -delete
cargo run --quiet --locked -p lowtide --example manuals -- "$target/release/manuals"
mkdir -p "$target/release/completions"
for shell in bash:lowtide.bash zsh:_lowtide fish:lowtide.fish; do
  "$target/release/lowtide" completions "${shell%%:*}" >"$target/release/completions/${shell#*:}"
done
cargo deb --quiet --no-build -p lowtide --output "$out/"

ensure_command python3 python3 || fail "python3 is missing"
[ -x "$tools/venv/bin/maturin" ] || { python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" --quiet install 'maturin>=1.7,<2'; } ||
  fail "maturin cannot be installed: python3 with venv (Debian package python3-venv) and an index of Python packages are needed"
"$tools/venv/bin/maturin" build --quiet --release --locked -m python/Cargo.toml -o "$out"
ls -l "$out"
