#!/usr/bin/env bash
# The programs of suite.toml and evaluation.toml: `program.sh prepare NAME` makes the data once, `program.sh run NAME` does a
# fixed amount of work in the foreground, WORK times as much (1) of what follows its start-up. What works at a fixed rate does so
# for PACED seconds (60), whatever WORK is. Servers listen on sockets in a private folder, or on loopback, and end with the run.

set -euo pipefail
export LC_ALL=C
data=${LOWTIDE_WORKLOADS:-/var/tmp/lowtide-workloads}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
sources=$here/../evaluation
paced=${PACED:-60}
mkdir -p "$data"

dir=
server=
cleanup() {
  local status=$?
  trap - EXIT INT TERM HUP
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  [ -z "$dir" ] || rm -rf -- "$dir"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# amount N: N times WORK, one at least.
amount() { awk -v n="$1" -v work="${WORK:-1}" 'BEGIN { n = int(n * work); printf "%.0f\n", n < 1 ? 1 : n }'; }
private() { dir=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/lowtide-program.XXXXXX"); }
# The same on a disk: what /tmp holds may be memory.
private_on_disk() { private "$data"; }
until_up() {
  local _
  for _ in $(seq 200); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  echo "the server did not come up" >&2
  return 1
}

start_redis() {
  private
  redis-server --port 0 --unixsocket "$dir/s" --save '' --appendonly no --dir "$dir" >"$dir/log" 2>&1 &
  server=$!
  until_up redis-cli -s "$dir/s" ping
}
# redis_reading KEYS READS: a redis that holds 400,000 keys of 1 KiB, of which its client reads the first so many so often.
redis_reading() {
  local socket first
  # Names as redis-benchmark makes them: twelve digits.
  local load='local value = string.rep("x", 1024)
for key = ARGV[1], ARGV[2] - 1 do redis.call("SET", string.format("key:%012d", key), value) end'
  start_redis
  socket=$dir/s
  for ((first = 0; first < 400000; first += 20000)); do
    redis-cli -s "$socket" eval "$load" 0 "$first" "$((first + 20000))" >/dev/null
  done
  redis-benchmark -s "$socket" -q -c 4 -P 8 -r "$1" -n "$2" get key:__rand_int__ | tr '\r' '\n' | tail -n 1
  redis-cli -s "$socket" info stats | tr -d '\r' | grep -qx keyspace_misses:0
}
run_redis() { redis_reading 20000 "$(amount 6000000)"; }
run_redis-hot() { redis_reading 2000 "$(amount 16000000)"; }

# client NAME WHERE: a store at a fixed rate.
client() { /usr/bin/python3 "$sources/paced.py" "$1" "$paced" "$2"; }
run_redis-paced() { start_redis; client redis "$dir/s"; }
run_redis-hot-paced() { start_redis; client redis-hot "$dir/s"; }

# A memcached of 512 MiB, filled, of which a tenth is read.
start_memcached() {
  private
  memcached -u "$(id -un)" -s "$dir/s" -m 600 -t 1 >"$dir/log" 2>&1 &
  server=$!
  until_up test -S "$dir/s"
}
run_memcached() {
  start_memcached
  /usr/bin/python3 "$here/memcached.py" "$dir/s" "$(amount 2400000)"
}
run_memcached-paced() { start_memcached; client memcached "$dir/s"; }

# A store of sorted tables on disk, in the process that uses it.
run_leveldb-paced() { private_on_disk; client leveldb "$dir/store"; }

# Queries by index on a database of some 300 MB, then scans.
prepare_sqlite() {
  [ -e "$data/sqlite.db" ] && return 0
  rm -f "$data/sqlite.tmp"
  sqlite3 "$data/sqlite.tmp" "
    PRAGMA journal_mode = off; PRAGMA synchronous = off;
    CREATE TABLE item (id INTEGER PRIMARY KEY, grp INTEGER, body TEXT);
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000)
      INSERT INTO item SELECT i, (i * 7919) % 10007, hex(randomblob(50)) FROM n;
    CREATE INDEX by_grp ON item (grp);"
  mv "$data/sqlite.tmp" "$data/sqlite.db"
}
run_sqlite() {
  sqlite3 -readonly "$data/sqlite.db" "
    PRAGMA cache_size = -400000; PRAGMA mmap_size = 0;
    SELECT count(*), sum(length(body)) FROM item;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $(amount 60000))
      SELECT sum((SELECT sum(length(body)) FROM item WHERE grp = (n.i * 31) % 500)) FROM n;"
}
prepare_sqlite-paced() { prepare_sqlite; }
run_sqlite-paced() { client sqlite "$data/sqlite.db"; }

# PostgreSQL, one client that reads by key, a fixed number of transactions.
postgres_bin() { find /usr/lib/postgresql -maxdepth 2 -name bin | sort -V | tail -n 1; }
# It refuses to run as root.
as_postgres=()
[ "$(id -u)" -ne 0 ] || as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups)
prepare_pgbench() {
  [ -e "$data/postgres/ready" ] && return 0
  rm -rf "$data/postgres"
  mkdir -p "$data/postgres"
  [ "$(id -u)" -ne 0 ] || chown postgres:postgres "$data/postgres"
  "${as_postgres[@]}" "$(postgres_bin)/initdb" -D "$data/postgres/db" -A trust >/dev/null
  start_postgres
  "${as_postgres[@]}" "$(postgres_bin)/pgbench" -h "$dir" -U postgres -i -s 20 -q postgres >/dev/null 2>&1
  "${as_postgres[@]}" touch "$data/postgres/ready"
}
start_postgres() {
  private
  [ "$(id -u)" -ne 0 ] || chown postgres:postgres "$dir"
  "${as_postgres[@]}" "$(postgres_bin)/postgres" -D "$data/postgres/db" -k "$dir" -c listen_addresses= -c shared_buffers=256MB \
    -c fsync=off >"$dir/log" 2>&1 &
  server=$!
  until_up "$(postgres_bin)/pg_isready" -h "$dir"
}
run_pgbench() {
  start_postgres
  "${as_postgres[@]}" "$(postgres_bin)/pgbench" -h "$dir" -U postgres -S -c 1 -t "$(amount 250000)" postgres 2>/dev/null | grep -E '^tps'
}
# 100 transactions a second that read and write; the last line of its report has what they took.
prepare_pgbench-paced() { prepare_pgbench; }
run_pgbench-paced() {
  start_postgres
  "${as_postgres[@]}" "$(postgres_bin)/pgbench" -h "$dir" -U postgres -n -N -c 2 -R 100 -T "$paced" postgres 2>/dev/null |
    grep -E '^(latency average|number of transactions)'
}

# A compressor with a window of 128 MiB.
prepare_zstd() {
  [ -e "$data/zstd.in" ] && return 0
  find /usr/lib /usr/share -xdev -type f -size +16k -print0 2>/dev/null | sort -z | xargs -0 cat 2>/dev/null |
    head -c 400M >"$data/zstd.tmp" || true
  mv "$data/zstd.tmp" "$data/zstd.in"
}
run_zstd() { zstd -q -9 --long=27 -T1 -c "$data/zstd.in" | wc -c; }

# A compiler at work on sources that it generates for itself: 24 files of 250 functions.
prepare_build() {
  [ -e "$data/build/Makefile" ] && return 0
  /usr/bin/python3 "$here/sources.py" "$data/build"
}
# A file is a unit of work; all are made over and over where it is more than they are.
run_build() { build_files "$(amount 24)"; }
prepare_gcc() { prepare_build; }
run_gcc() { build_files "$(amount 40)"; }
build_files() {
  local left=$1 files objects
  while [ "$left" -gt 0 ]; do
    files=$((left < 24 ? left : 24))
    mapfile -t objects < <(seq -f 'part%g.o' 0 $((files - 1)))
    make -s -C "$data/build" clean
    make -s -C "$data/build" -j2 "${objects[@]}"
    left=$((left - files))
  done
}

# Go in a private folder, and without a network.
with_go() {
  env HOME="$dir" GOPATH="$dir" GOCACHE="$dir/cache" GOTMPDIR="$dir" GOTOOLCHAIN=local GOTELEMETRY=off GOPROXY=off CGO_ENABLED=0 \
    go "$@"
}
# Packages of its own library, of which those that most others need are built already.
prepare_gobuild() {
  [ -e "$data/go-cache" ] && return 0
  private_on_disk
  cd "$dir"
  with_go build encoding/json net
  mv "$dir/cache" "$data/go-cache"
}
# Builds of all of them, and one of the first for the rest.
run_gobuild() {
  local left packages
  private_on_disk
  cd "$dir"
  mapfile -t packages < <(with_go list std | grep -Ev '(^|/)(vendor|internal)(/|$)' | head -n 150)
  for ((left = $(amount 150); left > 0; left -= 150)); do
    rm -rf cache
    cp -a "$data/go-cache" cache
    with_go build "${packages[@]:0:left}"
  done
}

# The compiler proper on one large source, which takes some 300 MiB.
prepare_compile() {
  [ -e "$data/large.i" ] && return 0
  /usr/bin/python3 "$here/sources.py" "$data/large" 1 "${LARGE_FUNCTIONS:-2000}"
  gcc -E "$data/large/part0.c" -o "$data/large.i"
}
run_compile() { "${CC1:-$(gcc -print-prog-name=cc1)}" -quiet -O2 -g "$data/large.i" -o /dev/null; }

# Molecular dynamics of a box of water.
prepare_gromacs() {
  [ -e "$data/gromacs/topol.tpr" ] && return 0
  mkdir -p "$data/gromacs"
  (
    cd "$data/gromacs"
    cp "$here/water.mdp" .
    printf '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spce.itp"\n[ system ]\nwater\n[ molecules ]\n' >topol.top
    gmx -quiet solvate -cs spc216 -box 6 6 6 -o conf.gro -p topol.top >log 2>&1
    gmx -quiet grompp -f water.mdp -c conf.gro -p topol.top -o topol.tpr -maxwarn 2 >>log 2>&1
  )
}
run_gromacs() {
  private
  cd "$dir"
  gmx -quiet mdrun -s "$data/gromacs/topol.tpr" -ntmpi 1 -ntomp 2 -nsteps 1500 -noconfout >log 2>&1
  grep '^Performance' log
}

# The same with as many threads as there are CPUs, as more would wait for each other. Floating point is slow in a guest: a step
# takes seconds.
prepare_water() { prepare_gromacs; }
run_water() {
  private
  cd "$dir"
  gmx -quiet mdrun -s "$data/gromacs/topol.tpr" -ntmpi 1 -ntomp "$(nproc)" -nsteps "$(amount 400)" -noconfout >log 2>&1
  grep '^Performance' log
}

# Relatives of a family of proteins, searched for over and over.
prepare_hmmer() {
  [ -e "$data/proteins/family.hmm" ] && return 0
  /usr/bin/python3 "$sources/inputs.py" proteins "$data/proteins"
  hmmbuild --amino "$data/proteins/new.hmm" "$data/proteins/family.afa" >/dev/null
  mv "$data/proteins/new.hmm" "$data/proteins/family.hmm"
}
run_hmmer() {
  local left
  for ((left = $(amount 30); left > 0; left--)); do
    hmmsearch --noali --cpu "$(nproc)" "$data/proteins/family.hmm" "$data/proteins/all.fa" | grep -c '>>'
  done
}

run_heat() { octave-cli --norc "$sources/heat.m" "$(amount 1500)"; }

# A block tridiagonal solver on a cube of 160 cells a side that writes all of it every other step.
numeric() {
  local name=$1
  shift
  "${NUMERIC:-$here/../../target/release}/$name" "$@"
}
run_blocks() {
  private
  numeric blocks 160 10 2 "$dir/checkpoints"
}

run_solver() {
  private_on_disk
  numeric blocks 120 "$(amount 30)" 1 "$dir/checkpoints"
}

# All of a matrix over and over, and a permutation with strides of all lengths.
run_lu() { numeric lu 3500; }
run_bitrev() { numeric bitrev 25 8; }

# A sort in memory of lines in no order.
prepare_sort() {
  [ -e "$data/sort.in" ] && return 0
  /usr/bin/python3 -c 'import random
random.seed(1)
for _ in range(8_000_000): print(f"{random.getrandbits(200):050x}")' >"$data/sort.tmp"
  mv "$data/sort.tmp" "$data/sort.in"
}
# Sorts of the entire file, and one of its first lines for the rest.
run_sort() { sort_lines "$(amount 8000000)"; }
prepare_sort-long() { prepare_sort; }
run_sort-long() { sort_lines "$(amount 40000000)"; }
sort_lines() {
  local left=$1 lines
  while [ "$left" -gt 0 ]; do
    lines=$((left < 8000000 ? left : 8000000))
    head -n "$lines" "$data/sort.in" | sort -S 1G --parallel=2 | tail -n 1
    left=$((left - lines))
  done
}

# A breadth-first search from many nodes of a random graph.
run_search() { /usr/bin/python3 "$here/search.py"; }

# PageRank on a random graph of 1.5 million nodes.
run_graph() { /usr/bin/python3 "$here/graph.py"; }

# Smaller graphs, for as long as is wanted.
run_ranks() { /usr/bin/python3 "$here/graph.py" 600000 6000000 "$(amount 1200)"; }
run_hops() { /usr/bin/python3 "$here/search.py" 600000 5000000 "$(amount 600)"; }

# Somebody who searches 300 MB of texts, every five seconds.
prepare_texts() {
  [ -e "$data/texts" ] && return 0
  rm -rf "$data/texts.tmp"
  /usr/bin/python3 "$sources/inputs.py" texts "$data/texts.tmp"
  mv "$data/texts.tmp" "$data/texts"
}
run_texts() {
  local left
  for ((left = paced / 5; left > 0; left--)); do
    rg -c --no-config 'qu[a-z]+ .*ze[a-z]+ .*x\b' "$data/texts" | wc -l
    sleep 5
  done
}

# A video encoder, from frames that are on disk. Better presets take hours in a guest.
prepare_encode() {
  [ -e "$data/frames.y4m" ] && return 0
  video=testsrc2=size=960x540:rate=25,noise=alls=12:allf=t:all_seed=1
  ffmpeg -v error -y -f lavfi -i "$video" -frames:v 250 -pix_fmt yuv420p -f yuv4mpegpipe "$data/frames.tmp"
  mv "$data/frames.tmp" "$data/frames.y4m"
}
run_encode() {
  ffmpeg -v error -nostdin -stream_loop -1 -i "$data/frames.y4m" -frames:v "$(amount 1000)" -c:v libx264 -preset superfast \
    -f null -
}

# A film at the speed at which it is watched.
prepare_playback() {
  [ -e "$data/film.mp4" ] && return 0
  ffmpeg -v error -y -f lavfi -i "mandelbrot=size=480x270:rate=25" -frames:v 500 -c:v libx264 -preset veryfast -pix_fmt yuv420p \
    -f mp4 "$data/film.tmp"
  mv "$data/film.tmp" "$data/film.mp4"
}
run_playback() { ffmpeg -v error -nostdin -re -stream_loop -1 -i "$data/film.mp4" -t "$paced" -f null -; }

# A picture of 3000 x 2000 dots is turned, corrected and made smaller, without much floating point, which is slow in a guest. By
# its path: the command has been called otherwise by others.
prepare_picture() {
  [ -e "$data/picture.miff" ] && return 0
  /usr/bin/convert -seed 1 -size 3000x2000 plasma:fractal -depth 8 "miff:$data/picture.tmp"
  mv "$data/picture.tmp" "$data/picture.miff"
}
run_picture() {
  local left
  for ((left = $(amount 60); left > 0; left--)); do
    /usr/bin/convert "miff:$data/picture.miff" -rotate 90 -level 10%,90% -flop -scale 50% png:- | wc -c
  done
}

# Programs that are used at a fixed rate, in four languages.
prepare_sessions() { [ -e "$data/Sessions.class" ] || javac -d "$data" "$sources/Sessions.java"; }
# Heaps are fixed, as in production: by themselves they are sized from a limit, and it would be another program under each.
run_sessions() { java -XX:+UseSerialGC -Xms64m -Xmx512m -cp "$data" Sessions "$paced"; }
run_feed() { node --max-old-space-size=512 --max-semi-space-size=8 "$sources/feed.js" "$paced"; }
run_library() { /usr/bin/python3 "$sources/library.py" "$paced"; }
prepare_routes() {
  [ -e "$data/routes" ] && return 0
  private_on_disk
  with_go build -o "$data/routes" "$sources/routes.go"
}
run_routes() { "$data/routes" "$paced"; }

# Programs whose use is known: at a fixed rate, and as fast as it can.
run_pattern-idle() { numeric pattern "$here/../patterns/fixed.toml" --seconds "$paced"; }
run_pattern-tight() { numeric pattern "$here/../patterns/tight.toml" --work "$(amount 10000000000)"; }

# The same in three languages: records of which a tenth is read, beside memory that is given back over and over.
run_python() { /usr/bin/python3 "$here/objects.py" "$(amount 6000000)"; }
prepare_java() { [ -e "$data/Objects.class" ] || javac -d "$data" "$here/Objects.java"; }
run_java() { java -Xmx640m -cp "$data" Objects "$(amount 60000000)"; }
run_node() { node --max-old-space-size=640 "$here/objects.js" "$(amount 30000000)"; }

verb=${1:?prepare or run}
name=${2:?a program}
case $verb in
  prepare) if declare -F "prepare_$name" >/dev/null; then "prepare_$name"; fi ;;
  run) "run_$name" ;;
  *) echo "program.sh: prepare or run" >&2; exit 2 ;;
esac
