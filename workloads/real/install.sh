#!/usr/bin/env bash
# Installs what the programs of suite.toml and evaluation.toml need, from Debian, and prepares their data below $LOWTIDE_WORKLOADS
# (/var/tmp/lowtide-workloads). `install.sh NAME...` only for these. Nothing is started; services are kept from starting.

set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
data=${LOWTIDE_WORKLOADS:-/var/tmp/lowtide-workloads}
mkdir -p "$data"

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
updated=
packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ -n "$updated" ] || "${as_root[@]}" apt-get -q update >&2
  updated=1
  # Nobody wants a database to run because it was measured once.
  "${as_root[@]}" env RUNLEVEL=1 apt-get -q -y --no-install-recommends install "${missing[@]}" >&2
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=(redis redis-hot memcached sqlite pgbench zstd build gromacs graph)
for name in "${names[@]}"; do
  case $name in
    redis | redis-hot | redis-paced | redis-hot-paced) packages redis-server redis-tools python3 ;;
    memcached | memcached-paced) packages memcached python3 ;;
    leveldb-paced) packages python3-plyvel ;;
    sqlite | sqlite-paced) packages sqlite3 python3 ;;
    pgbench | pgbench-paced) packages postgresql postgresql-contrib ;;
    zstd) packages zstd ;;
    blocks | solver | lu | bitrev | sort | sort-long | python | library | pattern-idle | pattern-tight) ;;
    java | sessions) packages openjdk-17-jdk-headless ;;
    node | feed) packages nodejs ;;
    build | compile | gcc) packages build-essential ;;
    # Not Debian's where there is another one.
    gobuild | routes) command -v go >/dev/null || packages golang-go ;;
    encode | playback) packages ffmpeg ;;
    picture) packages imagemagick ;;
    gromacs | water) packages gromacs ;;
    hmmer) packages hmmer python3 ;;
    heat) packages octave ;;
    texts) packages ripgrep python3 ;;
    graph | ranks | search | hops) packages python3-numpy python3-scipy ;;
    *) echo "install.sh: there is no program $name" >&2; exit 2 ;;
  esac
  LOWTIDE_WORKLOADS=$data "$here/program.sh" prepare "$name"
done
