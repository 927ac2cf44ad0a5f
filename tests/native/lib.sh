# shellcheck shell=bash
# Harness of the tests that need the real kernel of this machine. A test is a file NAME.sh beside this one that sources
# it, and is run by scripts/test.sh as root, or by hand:
#
#     sudo LOWTIDE=target/release/lowtide tests/native/NAME.sh
#
# It reports each thing it tests with one line: `ok - NAME`, `not ok - NAME` or `skip - NAME: needs CAPABILITY`; lines
# with `# ` before them are details. Processes started with `start` are ended and `$tmp` is removed when it ends,
# however it ends. Exit status: 1 if anything was not ok.

set -uo pipefail
export LC_ALL=C

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
: "${LOWTIDE:=$repository/target/release/lowtide}"
: "${PATTERN:=$repository/target/release/pattern}"
# shellcheck disable=SC2034  # for the tests
patterns=$repository/workloads/patterns
export LOWTIDE PATTERN

tmp=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-test.XXXXXX")
started=
all_started=()
anything_failed=0

finish_test() {
  local status=$? pid
  # A process that is stopped before it has become its program is a copy of this shell, with its traps: what it ends and
  # removes would be the test's.
  [ "$BASHPID" = "$$" ] || exit "$status"
  trap - EXIT INT TERM HUP
  for pid in "${all_started[@]}"; do
    stop "$pid"
  done
  rm -rf -- "$tmp"
  # Ending early is a failure even if everything so far was ok: what was to follow was not tested.
  [ "$status" -eq 0 ] || exit "$status"
  exit "$anything_failed"
}
trap finish_test EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- lowtide

# announced NAME: whether doctor names the monitor that a run uses.
announced() {
  local said
  said=$("$LOWTIDE" doctor --json | jq -r .monitor.backend)
  "$LOWTIDE" run --out "$tmp/announced" -- sleep 2 2>/dev/null
  equals "$1" "$(json "$tmp/announced/meta.json" .monitor.backend)" "$said"
  rm -rf -- "$tmp/announced"
}

# --- reporting

ok() { printf 'ok - %s\n' "$1"; }

# not_ok NAME [DETAIL]...
not_ok() {
  printf 'not ok - %s\n' "$1"
  shift
  [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/# /'
  anything_failed=1
}

# skip NAME CAPABILITY
skip() { printf 'skip - %s: needs %s\n' "$1" "$2"; }

# check NAME COMMAND...: ok if the command succeeds; else its output is the detail.
check() {
  local name=$1 output status
  shift
  if output=$("$@" 2>&1); then
    ok "$name"
  else
    status=$?
    not_ok "$name" "status $status of: $*" "$output"
    return 1
  fi
}

# equals NAME GOT WANTED
equals() {
  if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got    '$2'" "wanted '$3'"; return 1; fi
}

# contains NAME TEXT PART
contains() {
  case $2 in
    *"$3"*) ok "$1" ;;
    *) not_ok "$1" "no '$3' in:" "$2"; return 1 ;;
  esac
}

# between NAME VALUE LOWEST HIGHEST: numbers, fractions too. Anything that is no number (null) is not between.
between() {
  if awk -v v="$2" -v low="$3" -v high="$4" \
    'BEGIN { exit !(v ~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/ && v + 0 >= low + 0 && v + 0 <= high + 0) }'; then
    ok "$1"
  else
    not_ok "$1" "$2 is not between $3 and $4"
    return 1
  fi
}

# --- what the machine offers

# have CAPABILITY: whether this machine has it now. The names are those that `skip` prints.
have() {
  local word=${1#* }
  case $1 in
    root) [ "$(id -u)" -eq 0 ] ;;
    DAMON) [ -e /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds ] ;;
    "DAMON "*) have DAMON && damon_operations | grep -qw "$word" ;;
    "a free DAMON") have DAMON && ! grep -qsx on /sys/kernel/mm/damon/admin/kdamonds/*/state ;;
    "cgroup v1") [ -n "$(memory_mount)" ] ;;
    "cgroup v2") grep -qsw memory /sys/fs/cgroup/cgroup.controllers ;;
    PSI) cat /proc/pressure/memory >/dev/null 2>&1 ;;
    MGLRU) grep -qs '[1-9a-f]$' /sys/kernel/mm/lru_gen/enabled ;;
    tracefs) grep -qw tracefs /proc/filesystems ;;
    swap) [ "$(wc -l </proc/swaps)" -gt 1 ] ;;
    "page frames") have root && [ -r /proc/kpageflags ] ;;
    "command "*) command -v "$word" >/dev/null ;;
    *) echo "lib.sh: unknown capability '$1'" >&2; exit 2 ;;
  esac
}

# memory_mount: where the memory controller of cgroup version 1 is mounted; nothing where it is not.
memory_mount() { awk '/ - cgroup / && $NF ~ /(^|,)memory(,|$)/ { print $5 }' /proc/self/mountinfo; }

# memory_cgroup: the path below it of the cgroup that the test runs in, without a slash at the end.
memory_cgroup() { awk -F: '$2 ~ /(^|,)memory(,|$)/ { sub("/$", "", $3); print $3 }' /proc/self/cgroup; }

# need CAPABILITY NAME...: if the machine lacks it, reports the named tests as skipped and returns 1.
need() {
  local capability=$1 name
  shift
  have "$capability" && return 0
  for name in "$@"; do
    skip "$name" "$capability"
  done
  return 1
}

# The words of avail_operations. It can only be read below a context; where there is none, one is made and taken away
# again, which the kernel refuses while any kdamond is on.
damon_operations() {
  local admin=/sys/kernel/mm/damon/admin/kdamonds file kdamonds
  for file in "$admin"/*/contexts/0/avail_operations; do
    [ -e "$file" ] && { cat "$file"; return; }
  done
  kdamonds=$(cat "$admin/nr_kdamonds")
  { echo 1 >"$admin/nr_kdamonds" && echo 1 >"$admin/0/contexts/nr_contexts"; } 2>/dev/null || return 1
  cat "$admin/0/contexts/0/avail_operations"
  echo "$kdamonds" >"$admin/nr_kdamonds"
}

# What lowtide changes in a kernel, as text: equal before and after means nothing was left behind.
kernel_state() {
  local admin=/sys/kernel/mm/damon/admin/kdamonds journal pid
  grep -s . "$admin/nr_kdamonds" "$admin"/*/state "$admin"/*/contexts/nr_contexts
  # Other lowtides may be at work on this machine; what they hold is not left behind.
  find /sys/fs/cgroup -type d -name 'lowtide-*' 2>/dev/null | while IFS= read -r group; do
    [ -e "/proc/${group##*-}" ] || echo "$group"
  done
  for journal in /run/lowtide/undo/*.journal; do
    pid=$(basename -- "$journal" .journal)
    [ ! -e "$journal" ] || [ -e "/proc/$pid" ] || echo "$journal"
  done
  awk '{ print $1 }' /proc/swaps
  # A mount of its own, as it may not be mounted; in a name space of its own, so that it is not visible outside.
  if have tracefs && have root; then
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount sh -c 'mount -t tracefs none "$1" && ls -1 "$1/instances"' sh "$tmp"
  fi
}

# --- processes

# in_group NAME COMMAND...: starts it in the cgroup `$root/NAME` (version 2).
# shellcheck disable=SC2154  # $root is set by the test
in_group() {
  local group=$root/$1
  mkdir -p "$group"
  shift
  # shellcheck disable=SC2016  # expanded by the inner shell
  start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@" >/dev/null
}
# held NAME: bytes charged to it.
# shellcheck disable=SC2154  # as above
held() { local bytes && read -r bytes <"$root/$1/memory.current" && echo "$bytes"; }

# pattern_of FILE SIZE HOT SECONDS PASSES: a pattern of one area, of which the first HOT bytes are swept so often a second.
pattern_of() {
  cat >"$1" <<END
name = "$(basename -- "$1" .toml)"
[[area]]
name = "heap"
size = "$2"
[[phase]]
seconds = $4
[[phase.access]]
area = "heap"
hot = { offset = "0", size = "$3" }
passes_per_second = $5
END
}

# null_swap: a disk for swap that takes 100 us for a page, in which nobody computes. Fails without CONFIG_BLK_DEV_NULL_BLK.
null_swap() {
  modprobe null_blk gb=1 bs=4096 irqmode=2 completion_nsec=100000 memory_backed=1 && mkswap /dev/nullb0 >/dev/null && swapon /dev/nullb0
}

# start COMMAND...: runs it in the background; its pid is in $started.
start() {
  # Job control: a background process of a script would otherwise start with SIGINT ignored.
  set -m
  "$@" &
  started=$!
  set +m
  all_started+=("$started")
}

# start_failing FIRST EVERY FAULTS COMMAND...: starts it as `start` does, with system calls that fail again and again: from about
# the FIRST call of a thread on, one in EVERY or some more. FAULTS are CALL:ERROR, separated by blanks; what failed is in `trace`.
start_failing() {
  local first=$1 every=$2 fault calls='' injected=()
  for fault in $3; do
    calls+=${fault%:*},
    injected+=(-e "inject=${fault%:*}:error=${fault#*:}:when=$first+$((every + ${#injected[@]}))")
  done
  shift 3
  # -D: the program is the child, not strace.
  start strace -D -f -o trace -e "trace=${calls%,}" "${injected[@]}" "$@"
}

# stop PID: ends a started process, with SIGKILL if it does not listen for 5 s.
stop() {
  kill -s TERM "$1" 2>/dev/null
  wait_for 5 gone "$1" || kill -s KILL "$1" 2>/dev/null
  wait "$1" 2>/dev/null
  return 0
}

# gone PID: whether it has ended (a zombie has).
gone() {
  case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in '' | Z*) return 0 ;; *) return 1 ;; esac
}

# wait_for SECONDS COMMAND...: until the command succeeds; 1 if it does not in time.
wait_for() {
  local end=$((SECONDS + $1)) never status=0
  shift
  # From a pipe that only this shell has nothing comes: starting `sleep` each time took a quarter of some guests' CPU time.
  exec {never}<> <(:)
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      status=1
      break
    fi
    read -rt 0.1 -u "$never" || :
  done
  exec {never}>&-
  return "$status"
}

# --- reading records

# json FILE FILTER: what jq's filter says of the file.
json() { jq -r "$2" "$1"; }

# median_reading RECORD WINDOW: the median of all readings of the working set of that window; null where there are none.
median_reading() {
  "$LOWTIDE" report "$1" timeline --format json 2>/dev/null |
    jq "[.[].ws_${2}s_bytes | select(. != null)] | sort | if length > 0 then .[length / 2 | floor] | floor else null end"
}
