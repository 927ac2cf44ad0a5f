#!/usr/bin/env bash
# The programs of suite.toml: `program.sh prepare NAME` makes the data once, `program.sh run NAME` does a fixed amount of
# work in the foreground, WORK times as much (1) of what follows its start-up. Servers listen on sockets in a private folder,
# or on loopback, and end with the run.

set -euo pipefail
export LC_ALL=C
data=${LOWTIDE_WORKLOADS:-/var/tmp/lowtide-workloads}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
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
amount() { awk -v n="$1" -v work="${WORK:-1}" 'BEGIN { n = int(n * work); print n < 1 ? 1 : n }'; }
private() { dir=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-program.XXXXXX"); }
until_up() {
  local _
  for _ in $(seq 200); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  echo "the server did not come up" >&2
  return 1
}

# redis_reading KEYS READS: a redis that holds 400,000 keys of 1 KiB, of which its client reads the first so many so often.
redis_reading() {
  private
  local socket=$dir/s first
  # Names as redis-benchmark makes them: twelve digits.
  local load='local value = string.rep("x", 1024)
for key = ARGV[1], ARGV[2] - 1 do redis.call("SET", string.format("key:%012d", key), value) end'
  redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$dir" >"$dir/log" 2>&1 &
  server=$!
  until_up redis-cli -s "$socket" ping
  for ((first = 0; first < 400000; first += 20000)); do
    redis-cli -s "$socket" eval "$load" 0 "$first" "$((first + 20000))" >/dev/null
  done
  redis-benchmark -s "$socket" -q -c 4 -P 8 -r "$1" -n "$2" get key:__rand_int__ | tr '\r' '\n' | tail -n 1
  redis-cli -s "$socket" info stats | tr -d '\r' | grep -qx keyspace_misses:0
}
run_redis() { redis_reading 20000 "$(amount 6000000)"; }
run_redis-hot() { redis_reading 2000 "$(amount 16000000)"; }

# A memcached of 512 MiB, filled, of which a tenth is read.
run_memcached() {
  private
  memcached -u "$(id -un)" -s "$dir/s" -m 600 -t 1 >"$dir/log" 2>&1 &
  server=$!
  until_up test -S "$dir/s"
  /usr/bin/python3 "$here/memcached.py" "$dir/s" "$(amount 2400000)"
}

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
run_build() {
  local left files objects
  left=$(amount 24)
  while [ "$left" -gt 0 ]; do
    files=$((left < 24 ? left : 24))
    mapfile -t objects < <(seq -f 'part%g.o' 0 $((files - 1)))
    make -s -C "$data/build" clean
    make -s -C "$data/build" -j2 "${objects[@]}"
    left=$((left - files))
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
run_sort() {
  local left lines
  left=$(amount 8000000)
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
