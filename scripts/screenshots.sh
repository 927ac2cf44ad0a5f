#!/usr/bin/env bash
# screenshots.sh FOLDER [CSV]: records, imports, compares and simulates, and makes a picture of every page: light and dark,
# 390 and 1400 pixels wide. CSV is a recording of WMO, to be imported as well. What FOLDER already holds is not made again.
# LOWTIDE is the program (target/debug/lowtide).

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

[ $# -ge 1 ] || fail "give a folder for the pictures"
out=$(realpath -m -- "$1") csv=${2:-} repository=$PWD
lowtide=$(realpath -- "${LOWTIDE:-target/debug/lowtide}") || fail "build lowtide first: cargo build"
{ ensure_command chromium chromium && ensure_command python3 python3; } >/dev/null || fail "chromium and python3 are needed"
mkdir -p -- "$out"
cd -- "$out"

[ -e run ] || "$lowtide" run --monitor smaps --out run -- python3 "$repository/workloads/phased.py" 200 40 30 >run.txt 2>&1
# It goes on where it was: a comparison that is complete only writes its page anew.
"$lowtide" compare --configs orig,rec,thp --runs 3 --out compare \
  -- python3 "$repository/workloads/phased.py" 64 16 1 >compare.txt 2>&1
# As perf prints a recording of damo: 40 aggregations of a target whose use goes up and down.
[ -e damo ] || {
  awk 'BEGIN {
    for (n = 0; n < 40; n++) {
      line = sprintf("kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=3", 100 + n / 10)
      printf "%s 140731667070976-140731668037632: 0 %d\n", line, n
      printf "%s 140731668037632-%.0f: %d 1\n", line, 140731668037632 + 4096 * (n + 1), n % 20 + 1
      printf "%s 140731700000000-140731700409600: %d 3\n", line, n % 3
    }
  }' >damo.perf
  "$lowtide" import damo.perf --out damo >/dev/null
}
[ -z "$csv" ] || [ -e wmo ] || "$lowtide" import "$csv" --out wmo >/dev/null

# The pages are made anew: they are what is looked at.
for record in run damo wmo; do
  [ ! -e "$record" ] || "$lowtide" report "$record" --format html --output "$record.html"
done
cp compare/report.html compare.html
"$lowtide" simulate --scenario "$repository/workloads/scenarios/web-and-batch.toml" \
  --policy "$repository/workloads/scenarios/policies.toml" --format html --output simulate.html

for page in *.html; do
  echo "open file://$out/$page"
  for width in 390 1400; do
    for dark in off on; do
      theme=light
      [ "$dark" = off ] || theme=dark
      printf '%s\n' "size $width 900" "dark $dark" "shot $out/${page%.html}-$width-$theme.png"
    done
  done
done | python3 "$repository/tests/native/browser.py" chromium | { grep -v '^ok$' && exit 1 || true; }
ls -- *.png

# The terminal at three widths, as text; tmux with a server of its own.
ensure_command tmux tmux >/dev/null || fail "tmux is needed for the terminal's screens"
python3 "$repository/workloads/phased.py" 200 40 60 &
program=$!
trap 'kill "$program" 2>/dev/null || true' EXIT
for columns in 60 80 140; do
  tmux -L "lowtide-$$" new-session -d -x "$columns" -y 30 "$lowtide watch --pid $program"
  sleep 8
  tmux -L "lowtide-$$" capture-pane -p >"watch-$columns.txt"
  tmux -L "lowtide-$$" kill-server
done
echo "$out"
