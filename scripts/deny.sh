#!/usr/bin/env bash
# `make deny`: licences, sources and advisories of all dependencies, by the rules of deny.toml.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
# Not installed here: it takes minutes to build, and only those who change dependencies need it.
cargo deny --version >/dev/null 2>&1 || fail "cargo-deny is missing: cargo install --locked cargo-deny"
exec cargo deny --locked check
