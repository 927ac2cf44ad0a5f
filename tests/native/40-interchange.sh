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

# Hostile and half-written files: an error that says what is wrong, no record, and not the machine's memory.
python3 - <<'END'
import zlib
def pack(name, *pieces):
    with open(name, "wb") as file:
        packer = zlib.compressobj(1)
        for piece, count in pieces:
            for _ in range(count):
                file.write(packer.compress(piece))
        file.write(packer.flush())
pack("regions.data", (b'[{"snapshots":[{"start_time":0,"end_time":1,"regions":[', 1), (b'{"start":0,"end":1},' * 1000, 17000))
pack("string.data", (b'[{"target_id":"', 1), (b"9" * 1000000, 100))
pack("lists.data", (b'[{"unknown":', 1), (b"[" * 1000, 1000))
END
# refused FILE PART: the file is refused in 2 GiB of memory, the message has the part, and there is no record.
refused() {
  (ulimit -v 2097152 && "$LOWTIDE" import "$1" --out refused) 2>err
  equals "$1 is refused" $? 1
  contains "$1 is refused with the reason" "$(cat err)" "$2"
  equals "$1 leaves no record" "$(ls -d refused 2>/dev/null)" ""
}
refused regions.data "more than 16777216 regions"
refused string.data "bytes in a word"
refused lists.data "lists in each other"
printf '[{"target_id":1,"snapshots":[{"start_time":1,"end_ti' >half.data
refused half.data "cut short"
printf 'timestamp,memory.stat.anon\n' >empty.csv
refused empty.csv "without a row"

# Rows that take more memory than is allowed.
{ echo timestamp,memory.stat.anon && seq 1000 | sed 's/$/,1/'; } >rows.csv
"$LOWTIDE" import rows.csv --out rows --max-input 64K 2>err
equals "a recording that takes too much memory is refused" $? 1
contains "and the message names the option" "$(cat err)" "--max-input SIZE reads more"
check "which has it read" "$LOWTIDE" import rows.csv --out rows
contains "a record is read in part" "$("$LOWTIDE" report rows --max-input 64K 2>&1)" "read in part"

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
# Recordings of damo's with intervals: one target; three in one context of which two ended early; and one with holes,
# of which each fourth snapshot was kept.
python3 - <<'END'
import json, random, zlib
def recording(name, seed, targets, snapshots, kept=1, holes=0):
    rand, begin, records = random.Random(seed), 1_700_000_000_000, []
    times = [begin]
    for _ in range(snapshots):
        times.append(times[-1] + 100_000_000 + rand.randrange(3_000_000))
    for target in range(targets):
        low = 94_827_419_009_024 + (target << 34)
        bounds = [(low, low + 4096 * rand.randrange(2000, 9000)), (low + (1 << 30), low + (1 << 30) + 4096 * rand.randrange(500, 90000))]
        list = []
        for start_time, end_time in zip(times, times[1:][:snapshots - 7 * target]):
            regions = []
            for first, last in bounds:
                last += 4096 * rand.choice([0, 0, rand.randrange(50)])
                cuts = sorted({first, last, *(first + 4096 * rand.randrange((last - first) // 4096) for _ in range(rand.randrange(1, 9)))})
                regions += [dict(start=str(start), end=str(end), nr_accesses=dict(samples=rand.choice([0, 0, 0, 1, 2, 3, 7, 19, 20]), percent=None),
                                 age=dict(usec=None, aggr_intervals=str(rand.choice([0, 1, 5, 30]))), sz_filter_passed="0 B")
                            for start, end in zip(cuts, cuts[1:]) if rand.random() >= holes]
            list.append(dict(start_time=str(start_time), end_time=str(end_time), regions=regions, total_bytes=None, damos_stats=None, sample_interval_us=None))
        records.append(dict(kdamond_idx=0, context_idx=0, intervals=dict(sample_us="5 ms", aggr_us="100 ms", ops_update_us="1 s"),
                            scheme_idx=None, target_id=target + 1, scheme_filters=[], snapshots=list[::kept]))
    with open(name, "wb") as file:
        file.write(zlib.compress(json.dumps(records).encode()))
recording("one.data", 1, 1, 57)
recording("three.data", 2, 3, 129)
recording("holes.data", 3, 1, 129, kept=4, holes=0.2)
END
for name in one three holes; do
  check "damo's recording of $name is imported" "$LOWTIDE" import "$name.data" --out "$name"
  check "and exported" "$LOWTIDE" export "$name" --output "$name.out"
done

# damo's working sets: target (0 for all), percentile, bytes.
wss() { "$venv/bin/damo" report wss --raw_number --input "$@" | awk '/^# target_id/ { target = $3 } /^ *[0-9]/ { print target, $1, $2 }'; }
ours() { "$LOWTIDE" report "$1" workingset --rule damo --format csv "${@:2}" | awk -F, 'NR > 1 { print $1 + 0, $2, $3 }'; }
equals "damo opens the export, and finds what it finds in the original" "$(wss exported.data)" "$(wss perf.txt)"
equals "and lowtide's figures by its rule are damo's to the byte" "$(ours perf)" "$(wss perf.txt)"
# same_wss OPTIONS-OF-DAMO / OPTIONS: in each recording, the original and the export, the figures are the same.
same_wss() {
  local name file damo=()
  while [ "$1" != / ]; do
    damo+=("$1")
    shift
  done
  shift
  for name in one three holes; do
    for file in "$name.data" "$name.out"; do
      equals "wss ${damo[*]} of $file" "$(ours "$name" "$@")" "$(wss "$file" "${damo[@]}")"
    done
  done
}
same_wss /
same_wss --range 0 101 1 / --percentiles 0-100:1
same_wss --exclude_samples 0 --range 50 100 7 / --leave-out 0 --percentiles 50-99:7
same_wss --sortby time --range 0 101 5 / --sort time --percentiles 0-100:5
same_wss --acc_thres 5 --sz_thres 400000 / --least-accesses 5 --least-size 400000B
same_wss --work_time 300000 / --join 300ms
same_wss --work_time 1000000 --acc_thres 30 --per_target / --join 1s --least-accesses 30 --each-target
same_wss --all_wss --per_target / --every --each-target
equals "with every percentile" "$(ours three --percentiles 0-100:1 | wc -l)" 101
"$LOWTIDE" report one workingset --percentiles 50 2>err
equals "options of damo's rule without it are a usage error" $? 2

# Heatmaps. damo writes times as fractions, though all of them are integers.
guide() { "$venv/bin/damo" report heatmap --guide --input "$1" | tr -d '[,)' | awk '$1 == "target_id:" || $1 == "time:" || $1 == "region" { print $2 == "" ? "" : $2, $3, $4 }'; }
our_guide() {
  "$LOWTIDE" report "$1" heatmap --rule damo --cells 1x1 --json | jq -r '.targets[] | "\(.pid)  ",
    "\(.start_ns) \(.end_ns) (\(.end_ns - .start_ns)", (.ranges | to_entries[] | "\(.key): \(.value.start) \(.value.end)")'
}
heats() { "$venv/bin/damo" report heatmap --output raw --input "$@" | python3 -c 'import sys; [print(int(float(t)), a, float(heat)) for t, a, heat in map(str.split, sys.stdin)]'; }
our_heats() {
  "$LOWTIDE" report "$1" heatmap --rule damo --format csv "${@:2}" |
    python3 -c 'import csv, sys; [print(row["t_ns"], row["start"], float(row["hz"] or "nan")) for row in csv.DictReader(sys.stdin)]'
}
# same_heats NAME RECORD FILE CELLS [TARGET]: the hottest range has the cells that damo finds in the file.
same_heats() {
  local cells=("${4%x*}" "${4#*x}")
  our_heats "$2" --cells "$4" ${5:+--pid "$5"} >ours.txt
  heats "$3" --abs_time --abs_addr --resol "${cells[@]}" ${5:+--tid "$5"} >damos.txt
  equals "$1: every cell is there" "$(wc -l <ours.txt)" $((cells[0] * cells[1]))
  check "$1" cmp ours.txt damos.txt
}
for name in one three holes; do
  equals "the guide of $name" "$(our_guide "$name")" "$(guide "$name.out")"
  same_heats "cells of $name" "$name" "$name.out" 40x80
  our_heats "$name" --cells 113x57 --all-ranges >ours.txt
  heats "$name.out" --abs_time --abs_addr --resol 113 57 --draw_range all >damos.txt
  check "cells of all ranges of $name" cmp ours.txt damos.txt
done
for name in one three; do
  heats "$name.out" --resol 40 80 >export.txt
  heats "$name.data" --resol 40 80 >original.txt
  check "the export of $name has the heat of the original" cmp export.txt original.txt
done
equals "the guide has every target" "$(our_guide three | wc -l)" 12
same_heats "cells of one of three targets" three three.out 7x9 1
check "damo draws the export's heatmap" "$venv/bin/damo" report heatmap --input exported.data --output stdout
for format in json json_compressed; do
  cp perf.txt damon.data
  "$venv/bin/damo" convert_record_format --record_file damon.data --format "$format" --output_file "$format.data" >/dev/null 2>&1
  check "damo's $format is imported" "$LOWTIDE" import "$format.data" --out "$format"
  equals "with damo's figures" "$(ours "$format")" "$(wss perf.txt)"
done
