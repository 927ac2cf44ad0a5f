#!/usr/bin/env bash
# `make lint`: what must be clean before a change goes in.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
ensure_component fmt rustfmt
ensure_component clippy clippy
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo clippy --workspace --all-targets --locked -- -D warnings
if ensure_command shellcheck shellcheck; then
  mapfile -t scripts < <(shell_scripts)
  # What is only remarked (a $ or ` that is meant to stay) is for whoever writes it to judge.
  shellcheck --external-sources --severity=warning "${scripts[@]}"
fi
