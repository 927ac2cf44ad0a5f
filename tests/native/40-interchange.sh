#!/usr/bin/env bash
# Recordings of other tools: what damo wrote is read, what lowtide writes is opened by damo, and both say the same.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1

# A recording as perf prints it: 40 aggregations of a target whose use goes up and down.
awk 'BEGIN {
  for (n = 0; n < 40; n++) {
    printf "kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=3 140731667070976-140731668037632: 0 %d\n", 100 + n / 10, n
    printf "kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=3 140731668037632-%.0f: %d 1\n", 100 + n / 10, 140731668037632 + 4096 * (n + 1), n % 20 + 1
    printf "kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=3 140731700000000-140731700409600: %d 3\n", 100 + n / 10, n % 3
  }
}' >perf.txt
check "text of perf script is imported" "$LOWTIDE" import perf.txt --out perf
check "its heatmap is drawn" "$LOWTIDE" report perf heatmap --format svg --output heatmap.svg
check "a record is exported" "$LOWTIDE" export perf --output exported.data
check "and imported again" "$LOWTIDE" import exported.data --out again
equals "with the same regions" "$("$LOWTIDE" report again regions --format csv | cut -d, -f3- | sha256sum)" \
  "$("$LOWTIDE" report perf regions --format csv | cut -d, -f3- | sha256sum)"
head -c 300 exported.data >cut.data
"$LOWTIDE" import cut.data --out cut 2>err
equals "a file that was cut short is refused" $? 1
contains "and said to be" "$(cat err)" "cut.data"
equals "without a record" "$(ls -d cut 2>/dev/null)" ""
"$LOWTIDE" import /etc/passwd --out none 2>err
contains "what is no recording is said to be none" "$(cat err)" "not a recording that lowtide knows"

# damo from PyPI, in a folder of its own that is kept between runs. Its version is the one whose options are known.
venv=${CARGO_TARGET_DIR:-$repository/target}/test-venv
if ! [ -x "$venv/bin/damo" ]; then
  python3 -m venv "$venv" >/dev/null 2>&1 && "$venv/bin/pip" install --quiet --disable-pip-version-check damo==3.4.3 >/dev/null 2>&1
fi
if ! [ -x "$venv/bin/damo" ]; then
  skip "damo agrees" "damo from PyPI, and python3 with venv"
  exit
fi
# damo reads through this.
need "command file" "damo agrees" || exit
wss() { "$venv/bin/damo" report wss --raw_number --input "$1" | awk '$1 ~ /^[0-9]+$/ { print $1, $2 }'; }
ours() { "$LOWTIDE" report "$1" workingset --rule damo --format csv | awk -F, 'NR > 1 { print $2, $3 }'; }
equals "damo opens the export, and finds what it finds in the original" "$(wss exported.data)" "$(wss perf.txt)"
equals "and lowtide's figures by its rule are damo's to the byte" "$(ours perf)" "$(wss perf.txt)"
check "damo draws the export's heatmap" "$venv/bin/damo" report heatmap --input exported.data --output stdout
for format in json json_compressed; do
  cp perf.txt damon.data
  "$venv/bin/damo" convert_record_format --record_file damon.data --format "$format" --output_file "$format.data" >/dev/null 2>&1
  check "damo's $format is imported" "$LOWTIDE" import "$format.data" --out "$format"
  equals "with damo's figures" "$(ours "$format")" "$(wss perf.txt)"
done
