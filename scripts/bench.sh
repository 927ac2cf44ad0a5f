#!/usr/bin/env bash
# `make bench`: how exact lowtide is and what it costs. Prints figures without thresholds. About an hour.
#
#   scripts/bench.sh [--pypi]                            everything: natively accuracy, cost and peers, in a guest peers, accuracy and reads
#   scripts/bench.sh [--pypi] accuracy|cost|peers|reads  one of them natively; options are lowtide-bench's
#   scripts/bench.sh simulated                           the simulated machine: its speed, and the tide curve's band on it
#   scripts/bench.sh [guest] fidelity [PROGRAM...]       the tide curve's predictions, and what happens
#   scripts/bench.sh coverage                            how often the intervals that lowtide prints hold the truth
#   scripts/bench.sh mixes                               the guard on simulated machines
#   scripts/bench.sh guest accuracy|cost|peers|reads ... one of them in a guest of vm/run
#   scripts/bench.sh instructions [--keep]               instructions of lowtide's work, beside bench/instructions.csv; kept there
#   scripts/bench.sh [guest] TRIAL                       wmo, phone, long, huge, agent-cost, thrash or service: see bench/trials
#   scripts/bench.sh guest faults                        tests/native/35-faults.sh on cgroups of version 2; FAULTS=all takes hours
#   scripts/bench.sh scale [KIND:SIZE]...                what a record costs with up to 10,000 processes, 16 GiB, 64 GiB of addresses
#   scripts/bench.sh guest soak [DAYS]                   days of the agent beside programs that come and go, in virtual time
#   scripts/bench.sh [--pypi] fleet [speed|fidelity|tune] replays of a fleet; with --pypi DuckDB and Spark beside them
#   scripts/bench.sh [--pypi] fleet hosts [HOSTS]        a day of 10,000 hosts, replayed; with --pypi on Spark, too
#   scripts/bench.sh budgets [PROGRAM...]                budgets, and the least that holds; some ten minutes a program
#   scripts/bench.sh mutants [K/N]                       mutants of model, policy and engine that the tests catch; one of N (60) of them
#   scripts/bench.sh pasted [NAME...]                    programs started again under the limits that are pasted, two hours
#   scripts/bench.sh counted [PROGRAM...]                real programs, and their use counted by page faults; two minutes each
#   scripts/bench.sh plots                               the figures of docs/evaluation.md, drawn again from the tables
#   scripts/bench.sh fuzz [SECONDS] [TARGET...]          what others write, fuzzed: see scripts/fuzz.sh
#   scripts/bench.sh trials                              all of them in guests, half an hour (`make trials`)
#
# --pypi   fetches psutil and damo from PyPI into $CARGO_TARGET_DIR/bench-venv. Nothing else is installed; missing
#          programs are left out, with a line `skip - NAME: needs CAPABILITY`.
#
# Environment of `fidelity`: RUNS (1: rounds of half an hour). Of `guest`: KERNEL (6.12), TIMEOUT (1500: seconds for everything
# in the guest). Of the trials: ROUNDS (1), and what the scripts name.

set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
bench=$target/release/lowtide-bench
venv=$target/bench-venv

# A selection for each place, so that everything together stays below 25 minutes. The guest's patterns fit into its
# 2 GiB; they include those that the fallback cannot measure.
native_patterns=fixed,eighth,islands,sparse,idle-tail,phases,huge,file
guest_patterns=fixed,islands,sparse,random,stairs,idle-tail,phases,huge,file,read

# The guest ends with this shell, however that ends.
in_guest() { setpriv --pdeathsig TERM vm/run "$@"; }
skip() { printf 'skip - %s: needs %s\n' "$1" "$2"; }

fetch_peers() {
  if [ ! -x "$venv/bin/python3" ] && ! python3 -m venv "$venv"; then
    skip "psutil and damo" "python3 with venv (Debian package python3-venv)"
    return
  fi
  # These versions are the ones whose options and output lowtide-bench knows.
  "$venv/bin/pip" install --quiet --disable-pip-version-check psutil==7.2.2 damo==3.4.3 ||
    skip "psutil and damo" "PyPI"
}

# Replays of a fleet; beside them the same in SQL, and on Spark with the Python package.
fleet() {
  local telemetry=$target/bench-fleet
  "$bench" fleet "$@" --keep "$telemetry"
  [ -x "$venv/bin/python3" ] || return 0
  title "the same in SQL"
  "$venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.4.1 && "$venv/bin/python3" bench/trials/fleet_sql.py "$target/release/lowtide" "$telemetry" ||
    skip "replays in SQL" "duckdb from PyPI"
  title "the same on Spark"
  if spark; then
    "$venv/bin/python3" bench/trials/fleet_spark.py "$telemetry"
    rm -f python/lowtide/*.so
  fi
}

# Puts the Python package and Spark beside what --pypi fetched.
spark() {
  if ! command -v java >/dev/null; then
    skip "replays on Spark" java
    return 1
  fi
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.7,<2' pyarrow 'pandas>=2.2,<3' 'pyspark>=4' &&
    VIRTUAL_ENV=$venv "$venv/bin/maturin" develop --quiet --release -m python/Cargo.toml && return
  skip "replays on Spark" "maturin and pyspark from PyPI"
  return 1
}

# A fleet of very many hosts.
fleet_hosts() {
  local python=python3 telemetry=$target/bench-fleet-${1:-10000}
  if [ -x "$venv/bin/python3" ] && spark; then python=$venv/bin/python3; fi
  "$python" bench/trials/fleet_hosts.py "$target/release/lowtide" "$telemetry" "$@"
  rm -f python/lowtide/*.so
}

# native SUBCOMMAND [OPTION]...
native() {
  local options=()
  if [ "$1" = peers ] && [ -x "$venv/bin/python3" ]; then
    options=(--python "$venv/bin/python3" --damo "$venv/bin/damo")
  fi
  # Options given later win.
  "$bench" "$1" "${options[@]}" "${@:2}"
}

# guest SUBCOMMAND [OPTION]...
guest() {
  local kernel=${KERNEL:-6.12} status=0 programs=/usr/local/bin
  [ -x vm/run ] || { skip "$1 in a guest" "vm/run"; return; }
  vm/run --kernel "$kernel" --prepare || status=$?
  case $status in
    0) ;;
    69) skip "$1 in a guest" "Debian mirror"; return ;;
    77) skip "$1 in a guest" "root, to fill the guests' cache once"; return ;;
    *) fail "the guest cannot be prepared (status $status)" ;;
  esac
  # Sampling a page costs some twenty times more there than on a processor; under the usual cap there would be too few
  # samples to measure exactness. Options given later win.
  local lifted=()
  [ "$1" != accuracy ] || lifted=(--max-overhead 100%)
  [ "$1" != peers ] || lifted=(--max-overhead 100%)
  # lowtide, pattern and the patterns are in every guest, and a Python; psutil and damo are put beside it.
  local puts=(--put "$bench:$programs/lowtide-bench") packages
  packages=$(echo "$venv"/lib/python3*/site-packages)
  if [ "$1" = peers ] && [ -d "$packages" ]; then
    local wrappers=$target/bench-wrappers
    mkdir -p "$wrappers"
    # shellcheck disable=SC2016  # expanded by the wrappers
    printf '#!/bin/sh\nPYTHONPATH=/opt/peers exec python3 "$@"\n' >"$wrappers/python"
    printf '#!/bin/sh\nexec %s -c "import sys; sys.argv[0] = \x27damo\x27; from damo.damo import main; main()" "$@"\n' \
      "$programs/peers-python" >"$wrappers/damo"
    chmod +x "$wrappers"/*
    puts+=(--put "$packages:/opt/peers" --put "$wrappers/python:$programs/peers-python" --put "$wrappers/damo:$programs/damo")
    lifted+=(--python "$programs/peers-python")
  fi
  local patterns=(--patterns /patterns) clock=host
  [ "$1" != reads ] || patterns=()
  # Exactness does not depend on the host's load.
  [ "$1" != accuracy ] || clock=virtual
  in_guest --kernel "$kernel" --clock "$clock" --timeout "${TIMEOUT:-1500}" "${puts[@]}" -- \
    lowtide-bench "$1" "${patterns[@]}" "${lifted[@]}" "${@:2}"
}

# Instructions are counted in a guest; the rate of a core is measured here.
instructions() {
  local counted=$target/instructions.csv status=0
  vm/run --kernel 6.12 --prepare || status=$?
  [ "$status" -eq 0 ] || { skip instructions "a guest: vm/run --prepare"; return; }
  in_guest --kernel 6.12 --clock virtual --memory 4G --no-flusher --timeout "${TIMEOUT:-3600}" --put "$bench:/usr/local/bin/lowtide-bench" \
    --get "/tmp/counted.csv:$counted" -- sh -c 'modprobe zram; exec lowtide-bench instructions --patterns /patterns --count /tmp/counted.csv'
  "$bench" instructions --counted "$counted" --known bench/instructions.csv
  [ "${1-}" != --keep ] || cp "$counted" bench/instructions.csv
}

# copy_libraries PROGRAM FOLDER: those that it needs, for a guest; the C library is the guest's own.
copy_libraries() { ldd "$1" | awk '/=> \// && !/\/lib(c|m|dl|pthread)\.so/ { print $3 }' | xargs -r cp -Lt "$2"; }

# The compiler proper with the libraries that it and its tools need, for a guest: into a folder.
compiler() {
  local folder=$1 tool
  rm -rf "$folder"
  mkdir -p "$folder/lib"
  for tool in "$(gcc -print-prog-name=cc1)" as ld make; do
    tool=$(command -v "$tool") || return
    cp -L "$tool" "$folder/"
    copy_libraries "$tool" "$folder/lib"
  done
}

# systemd-oomd with its libraries, for a guest: into a folder. It is not installed here, where it would be started.
oomd() {
  local folder=$1 program
  rm -rf "$folder"
  mkdir -p "$folder/deb"
  (cd "$folder" && apt-get -qq download systemd-oomd && dpkg -x systemd-oomd_*.deb deb) || return
  program=$(find "$folder/deb" -type f -path '*/systemd/systemd-oomd')
  [ -n "$program" ] || return
  mv "$program" "$folder/"
  rm -rf "$folder/deb" "$folder"/*.deb
  copy_libraries "$folder/systemd-oomd" "$folder"
}

# trial_here NAME [ARGUMENT]...: a trial on this machine.
trial_here() {
  if [ "$(id -u)" -ne 0 ]; then skip "$1" root; return; fi
  [ "$1" != thrash ] || workloads/real/install.sh compile
  [ "$1" != service ] || workloads/real/install.sh redis
  [ "$1" != budgets ] || workloads/real/install.sh "${@:2}"
  [ "$1" != pasted ] || workloads/real/install.sh redis memcached pgbench sqlite sort build python java node
  LOWTIDE=$target/release/lowtide "bench/trials/$1.sh" "${@:2}"
}

# trial_in_guest NAME [ARGUMENT]...: a trial in a guest, with the folders of the repository around it.
trial_in_guest() {
  local kernel=${KERNEL:-6.12} memory=2G puts=() settings=() options=() name
  [ -x vm/run ] || { skip "$1 in a guest" "vm/run"; return; }
  vm/run --kernel "$kernel" --prepare || { skip "$1 in a guest" "a guest: vm/run --prepare"; return; }
  for name in bench/trials tests/native scripts; do puts+=(--put "$name:/lowtide/$name"); done
  case $1 in
    wmo)
      memory=${MEMORY:-2G}
      # Some three minutes there.
      settings+=("FILES=${FILES:-64}" "SECONDS_OF_REDIS=${SECONDS_OF_REDIS:-120}")
      if compiler "$target/trial-compiler"; then puts+=(--put "$target/trial-compiler:/opt/cc"); fi
      ;;
    thrash)
      # Programs of some half a minute there.
      settings+=(CALIBRATE=1 "LU=${LU:-1448}" "BITREV=${BITREV:-23 4}")
      for name in lu bitrev; do puts+=(--put "$target/release/$name:/lowtide/target/release/$name"); done
      puts+=(--put workloads:/lowtide/workloads)
      if LOWTIDE_WORKLOADS=$target/trial-workloads LARGE_FUNCTIONS=${FUNCTIONS:-300} \
        workloads/real/program.sh prepare compile && compiler "$target/trial-compiler"; then
        puts+=(--put "$target/trial-compiler:/opt/cc" --put "$target/trial-workloads/large.i:/var/tmp/lowtide-workloads/large.i")
      fi
      if oomd "$target/trial-oomd"; then
        puts+=(--put "$target/trial-oomd:/opt/oomd")
      else
        skip "systemd-oomd beside programs" "Debian mirror"
      fi
      options=(--no-flusher)
      ;;
    long | huge) puts+=(--put workloads/patterns:/lowtide/workloads/patterns) settings+=(PATTERN=/usr/local/bin/pattern) ;;
    service) settings+=(CALIBRATE=1 PATTERN=/usr/local/bin/pattern) options=(--no-flusher) ;;
    soak) memory=${MEMORY:-1G} settings+=(IN_GUEST=1 PATTERN=/usr/local/bin/pattern) options=(--no-flusher --clock virtual) ;;
    # Not enough for all apps.
    phone) memory=${MEMORY:-1G} ;;
    # The TLB flusher makes hot memory visible to DAMON; here it would only use time.
    agent-cost) memory=${MEMORY:-4G} options=(--no-flusher) ;;
  esac
  for name in ROUNDS CONFIGS OBJECT_MIB JOBS KEYS REDIS_BURST ORDERS APPS CYCLES ANON_MIB FILE_MIB STAY_S SPARE_MIB \
    RUNS KEEP GENERATIONS SWAP PASSES SECONDS_EACH USED HELD_KIB EVERY MONITOR MIB SHORT BATCH TRIAL_LOGS; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
  done
  # shellcheck disable=SC2086  # options
  in_guest --kernel "$kernel" --memory "$memory" "${options[@]}" --timeout "${TIMEOUT:-1500}" "${puts[@]}" ${RUN_OPTIONS:-} -- \
    env LOWTIDE=/usr/local/bin/lowtide "${settings[@]}" "/lowtide/bench/trials/$1.sh" "${@:2}"
}

# Calls of lowtide fail, in a guest.
faults_in_guest() {
  local folder=$target/bench-strace
  vm/run --kernel "${KERNEL:-6.12}" --prepare || { skip "faults in a guest" "a guest: vm/run --prepare"; return; }
  ensure_command strace strace || { skip "faults in a guest" "command strace"; return; }
  rm -rf "$folder"
  mkdir -p "$folder"
  cp -L "$(command -v strace)" "$folder/"
  copy_libraries "$folder/strace" "$folder"
  # Its libraries are not those of what it traces.
  # shellcheck disable=SC2016  # expanded in the guest
  in_guest --kernel "${KERNEL:-6.12}" --clock virtual --no-flusher --timeout "${TIMEOUT:-3600}" --put "$folder:/opt/strace" \
    --put tests/native:/lowtide/tests/native --put scripts:/lowtide/scripts --put workloads/patterns:/lowtide/workloads/patterns -- \
    env LOWTIDE=/usr/local/bin/lowtide PATTERN=/usr/local/bin/pattern FAULTS="${FAULTS:-}" sh -c '
      printf "#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --library-path /opt/strace /opt/strace/strace \"\$@\"\n" >/usr/local/bin/strace
      chmod +x /usr/local/bin/strace && exec bash /lowtide/tests/native/35-faults.sh'
}

trials() {
  local status=0 name
  for name in wmo phone agent-cost; do
    title "$name, in a guest (an emulated machine: its times and CPU figures are not a real one's)"
    trial_in_guest "$name" || status=1
  done
  return "$status"
}

# The same in a guest, where generations give idle ages: some seven minutes a program.
fidelity_in_guest() {
  local programs=("$@") puts=() file
  [ $# -gt 0 ] || programs=(redis memcached sqlite zstd idle-tail)
  vm/run --kernel "${KERNEL:-6.12}" --prepare || { skip "fidelity in a guest" "a guest: vm/run --prepare"; return; }
  workloads/real/install.sh redis memcached zstd || { skip "fidelity in a guest" "the programs of the suite"; return; }
  # The guest has a redis; the others come with the libraries that it lacks.
  for file in /usr/bin/memcached /usr/bin/zstd; do
    puts+=(--put "$file:/usr/local/bin/${file##*/}")
    while read -r file; do puts+=(--put "$file:/usr$file"); done < <(
      ldd "$file" | awk '/=> \// && /lib(event|sasl2|lz4)/ { print $3 }')
  done
  vm/run --kernel "${KERNEL:-6.12}" --memory 3G --timeout "${TIMEOUT:-3600}" --put "$bench:/usr/local/bin/lowtide-bench" \
    --put scripts/guest-fidelity.sh:/f.sh --put workloads/real/steady.py:/steady.py "${puts[@]}" -- \
    bash /f.sh "${SECONDS_EACH:-100}" "${programs[@]}"
}

# The tide curve's predictions, and what happens, natively.
fidelity() {
  local folder
  folder=$target/fidelity-$(date +%Y%m%d-%H%M%S)
  if [ "$(id -u)" -ne 0 ]; then skip fidelity root; return; fi
  workloads/real/install.sh redis sqlite pgbench gromacs graph || { skip fidelity "the programs of the suite"; return; }
  "$target/release/lowtide" compare --suite workloads/fidelity.toml --configs orig,watch,age-5s,age-10s --runs "${RUNS:-1}" \
    --swap zram:2G --keep --out "$folder" >/dev/null
  "$bench" fidelity "$folder"
}

title() { printf '\n== %s\n\n' "$*"; }

everything() {
  local status=0
  title "the simulated machine"
  native simulated || status=1
  title "intervals: how often they hold the truth"
  native coverage || status=1
  title "replays of a fleet"
  fleet || status=1
  title "fidelity of the tide curve, natively"
  fidelity || status=1
  title "accuracy, natively"
  native accuracy --only "$native_patterns" || status=1
  title "cost, natively"
  native cost --seconds-per-run 4 || status=1
  title "peers, natively"
  native peers --seconds 20 || status=1
  title "peers, in a guest (an emulated machine, where DAMON is free)"
  guest peers --only fixed,islands --seconds 20 || status=1
  title "accuracy, in a guest (an emulated machine: its CPU figures are not a real one's)"
  guest accuracy --only "$guest_patterns" || status=1
  title "accuracy with the map on page frames, in a guest"
  guest accuracy --map paddr --only fixed,islands,file --seconds 20 || status=1
  title "accuracy by generations (MGLRU), in a guest"
  guest accuracy --monitor mglru --only fixed,islands,idle-tail,file --seconds 25 || status=1
  title "what others write, fuzzed"
  scripts/fuzz.sh 30 || status=1
  title "instructions, counted in a guest"
  instructions || status=1
  title "reading the kernel, in a guest"
  guest reads || status=1
  return "$status"
}

# Mutants of the crates that decide, each with its crate's own tests; a share of them by lot, as all would take days.
mutants() {
  local crates=(-p lowtide-model -p lowtide-policy -p lowtide-engine) out=$target/mutants
  cargo mutants --version >/dev/null 2>&1 || cargo install --locked cargo-mutants
  # Mutants that survive are what it is about: they are no failure of this script.
  cargo mutants "${crates[@]}" --shard "${1:-0/60}" --sharding round-robin --minimum-test-timeout 120 --output "$out" || true
  for kind in caught timeout missed; do
    printf '%s %s\n' "$kind" "$(wc -l <"$out/mutants.out/$kind.txt")"
  done
  title "those that no test catches"
  cat "$out/mutants.out/missed.txt"
}

[ "${1-}" != --help ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit; }
ensure_toolchain
[ "${1-}" != fuzz ] || exec scripts/fuzz.sh "${@:2}"
if [ "${1-}" = plots ]; then
  /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || apt_install python3-matplotlib >&2
  exec /usr/bin/python3 bench/trials/plots.py
fi
if [ "${1-}" = mutants ]; then
  mutants "${2-}"
  exit
fi
cargo build --release --locked --workspace --bins
if [ "${1-}" = --pypi ]; then
  shift
  fetch_peers
fi
case ${1-} in
  '') everything ;;
  guest)
    [ $# -ge 2 ] || fail "guest: which of accuracy, cost and peers?"
    shift
    case $1 in
      wmo | phone | long | huge | agent-cost | thrash | service | soak) trial_in_guest "$@" ;;
      fidelity) fidelity_in_guest "${@:2}" ;;
      faults) faults_in_guest ;;
      *) guest "$@" ;;
    esac
    ;;
  wmo | phone | long | huge | agent-cost | thrash | service | budgets | pasted) trial_here "$@" ;;
  counted)
    if [ "$(id -u)" -ne 0 ]; then skip counted root; exit; fi
    LOWTIDE=$target/release/lowtide LOWTIDE_BENCH=$bench bench/trials/recount.py "${@:2}"
    ;;
  instructions) instructions "${2-}" ;;
  scale) LOWTIDE=$target/release/lowtide bench/trials/scale.py "${@:2}" ;;
  trials) trials ;;
  fidelity) fidelity ;;
  fleet) if [ "${2:-}" = hosts ]; then fleet_hosts "${@:3}"; else fleet "${@:2}"; fi ;;
  *) native "$@" ;;
esac
