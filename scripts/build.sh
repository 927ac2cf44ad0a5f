#!/usr/bin/env bash
# `make build`: the release binary, target/release/lowtide.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
exec cargo build --release --locked --package lowtide
