#!/usr/bin/env bash
# Builds the packages of the last commit twice, in two folders and with two folders of cargo's, and compares them byte by byte.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
cargo=${CARGO_HOME:-$HOME/.cargo}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
for name in one another; do
  # Only its path differs: what was fetched is the same.
  mkdir -p "$work/$name/cargo"
  for part in registry git bin config.toml; do
    [ ! -e "$cargo/$part" ] || ln -s "$cargo/$part" "$work/$name/cargo/$part"
  done
  git clone --quiet . "$work/$name/source"
  CARGO_HOME=$work/$name/cargo CARGO_TARGET_DIR=$work/$name/target PACKAGE_TOOLS=${PACKAGE_TOOLS:-$target/package-tools} \
    "$work/$name/source/scripts/package.sh" >/dev/null
  (cd "$work/$name/target/package" && sha256sum -- *) | tee "$work/$name/sums"
done
cmp "$work/one/sums" "$work/another/sums" || fail "two builds differ"
echo "two builds are the same, byte for byte"
