#!/usr/bin/env bash
# `make compare`: real programs and patterns in several configurations, side by side; writes docs/evaluation/suite.md.
#
#   RUNS      rounds (2); each takes some four minutes a configuration
#   CONFIGS   configurations (orig,rec,thp,ethp-tuned,prcl,prcl-tuned)
#   ONLY      programs, separated by commas (all of workloads/suite.toml)

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
cargo build --release --locked --workspace --bins
if [ -n "${ONLY:-}" ]; then
  IFS=, read -ra names <<<"$ONLY"
  wanted=()
  for name in "${names[@]}"; do [[ $name == pattern-* ]] || wanted+=("$name"); done
  [ ${#wanted[@]} -eq 0 ] || workloads/real/install.sh "${wanted[@]}"
else
  workloads/real/install.sh
fi

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
tables=$(mktemp)
trap 'rm -f -- "$tables"' EXIT
status=0
"${as_root[@]}" target/release/lowtide compare --suite workloads/suite.toml ${ONLY:+--only "$ONLY"} \
  --configs "${CONFIGS:-orig,rec,thp,ethp-tuned,prcl,prcl-tuned}" --runs "${RUNS:-2}" --swap zram:2G \
  --published --out "target/compare-$(date +%Y%m%d-%H%M%S)" --format markdown >"$tables" || status=$?
[ -s "$tables" ] || exit "$status"
# docs/evaluation.md, which says what the tables mean, is written by hand.
{
  printf '# The suite in several configurations\n\n'
  printf 'Written by `make compare` at commit %s on Linux %s, %s CPUs, %s MiB. Every configuration has the same zram swap of 2 GiB. ' \
    "$(git rev-parse --short HEAD)" "$(uname -r)" "$(nproc)" "$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)"
  printf 'What the configurations are: [schemes.md](../schemes.md).\n'
  printf 'What it means: [evaluation.md](../evaluation.md#what-do-schemes-save-and-what-do-they-cost).\n\n'
  cat "$tables"
} >docs/evaluation/suite.md
echo "written: docs/evaluation/suite.md; docs/evaluation.md may need its conclusions changed"
exit "$status"
