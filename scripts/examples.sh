#!/usr/bin/env bash
# `make examples`: measures the demo's redis, makes docs/images/report.png of the first card of its report, and puts what lowtide
# printed into README.md and docs/budgets.md, between the lines `<!-- example NAME: begin -->` and `<!-- example NAME: end -->`. The text between them is always a command's output.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

ensure_toolchain
cargo build --release --locked --package lowtide
{ ensure_command redis-cli redis-tools && ensure_command redis-benchmark redis-tools; } || fail "the example needs redis"
lowtide=target/release/lowtide
record=target/example
rm -rf -- "$record"
"$lowtide" run --out "$record" -- scripts/demo-workload.sh </dev/null >/dev/null 2>&1

# block TITLE: one table of the summary, without the blank line after it.
block() { "$lowtide" report "$record" | awk -v title="$1" '$0 ~ "^" title { on = 1 } on && !NF { exit } on'; }

# put FILE NAME: the standard input, indented as code, takes the place of the example of that name.
put() {
  local file=$1 name=$2 text
  text=$(mktemp)
  sed 's/^\(.\)/    \1/' >"$text"
  awk -v begin="<!-- example $name: begin -->" -v end="<!-- example $name: end -->" -v text="$text" '
    $0 == begin { print; print ""; while ((getline line <text) > 0) print line; print ""; off = 1 }
    $0 == end { off = 0 }
    !off || $0 == end { if ($0 != begin) print }' "$file" >"$file.new"
  cat "$file.new" >"$file"
  rm -f -- "$file.new" "$text"
}

{
  # The first paragraph: the command, the machine, and the bottom line.
  "$lowtide" report "$record" | awk '/^Phases|^Working set/ { exit } { print }' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
  echo
  block "Phases"
  echo "..."
  block "What measuring cost"
} | put README.md run
{
  echo "$ lowtide budget RECORD --emit slurm"
  "$lowtide" budget "$record" --emit slurm 2>/dev/null
  echo "$ lowtide budget RECORD --with-swap 2G --emit slurm"
  "$lowtide" budget "$record" --with-swap 2G --emit slurm 2>/dev/null
} | put docs/budgets.md emit

ensure_command chromium chromium || fail "the picture needs chromium"
mkdir -p docs/images
chromium --headless=new --no-sandbox --hide-scrollbars --window-size=1100,520 --screenshot=docs/images/report.png \
  "file://$(realpath "$record")/report.html" >/dev/null 2>&1
