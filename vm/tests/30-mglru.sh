#!/usr/bin/env bash
# guest: --no-flusher
# Idle ages by the multi-generational LRU, against a program whose working set is known, in a cgroup with descendants.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
switch=/sys/kernel/mm/lru_gen/enabled
[ -e "$switch" ] || { skip "idle ages by generations" "a kernel with CONFIG_LRU_GEN"; exit; }
before=$(kernel_state)
was=$(cat "$switch")
if [ $((was & 1)) -eq 0 ]; then
  "$LOWTIDE" run --monitor mglru --out off -- true 2>err
  equals "an LRU that is switched off is refused" $? 3
  contains "and said to be" "$(cat err)" "switched off"
  echo y >"$switch"
fi

run() { "$LOWTIDE" run --monitor mglru --max-overhead 100% --out "$1" -- "$PATTERN" "$patterns/$2.toml" --seconds "$3" >out 2>err; }

check "64 MiB in use of 512 are recorded" run fixed fixed 26
equals "by generations" "$(json fixed/summary.json .monitor.backend)" mglru
between "their working set of 1 s" "$(median_reading fixed 1)" $((60 * mib)) $((70 * mib))
between "and of 5 s" "$(median_reading fixed 5)" $((60 * mib)) $((70 * mib))
# An average over the rounds; in the first one all memory was first touched.
between "what was idle for 5 s" "$(json fixed/summary.json '.cold[] | select(.age_s == 5) | .anon_bytes')" \
  $((300 * mib)) $((460 * mib))

# A cgroup of ours with two levels below it, the program at the lowest.
group=/sys/fs/cgroup/lowtide-test-$$
mkdir "$group" && echo +memory >"$group/cgroup.subtree_control" && mkdir "$group/a"
echo +memory >"$group/a/cgroup.subtree_control" && mkdir "$group/a/b"
start sh -c "echo 0 >$group/a/b/cgroup.procs; exec $PATTERN $patterns/fixed.toml --seconds 260"
program=$started
sleep 6
check "a cgroup is recorded with its descendants" \
  "$LOWTIDE" record --cgroup "${group#/sys/fs/cgroup}" --monitor mglru --max-overhead 100% --duration 17s --out tree
# Of 5 s: on a busy machine a tick may come so late that no birth lies a second back.
between "their working set of 5 s" "$(median_reading tree 5)" $((60 * mib)) $((70 * mib))
view() { "$LOWTIDE" report "$1" cgroups --format csv | awk -F, -v cgroup="${group#/sys/fs/cgroup}$2" -v type="$3" \
  -v column="$4" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $1 == cgroup && $3 == type { print $at[column] }'; }
between "the one below has it, too" "$(view tree /a/b anon ws_5s_bytes)" $((60 * mib)) $((70 * mib))

check "the long windows alone are recorded" \
  "$LOWTIDE" record --cgroup "$group" --monitor mglru --windows 10s --max-overhead 100% --duration 34s --out long
equals "no others have a figure" "$(median_reading long 1)-$(median_reading long 60)" null-null
between "and theirs is true" "$(median_reading long 10)" $((60 * mib)) $((70 * mib))

# Somebody else makes generations, too: what is not known then is not said. And they are switched off for a while.
# shellcheck disable=SC2016  # expanded by the inner shell
start bash -c 'while sleep 0.7; do
  awk "/^memcg/ { id = \$2; path = \$3 } path == \"$1\" && NF == 4 { seq = \$1; found = id } END { print \"+ \" found \" 0 \" seq }" /sys/kernel/debug/lru_gen >/sys/kernel/debug/lru_gen
done' ager "${group#/sys/fs/cgroup}/a/b"
ager=$started
"$LOWTIDE" record --cgroup "$group" --monitor mglru --max-overhead 100% --duration 17s --out others 2>err
stop "$ager"
set=$(median_reading others 1)
[ "$set" = null ] || between "with another that makes generations, a figure is true" "$set" $((60 * mib)) $((70 * mib))
equals "and windows that cannot be known have none" "$(median_reading others 10)" null
start "$LOWTIDE" record --cgroup "$group" --monitor mglru --max-overhead 100% --duration 17s --out off
recorder=$started
sleep 6
echo n >"$switch"; sleep 5; echo y >"$switch"
wait "$recorder"
equals "generations that are switched off meanwhile do no harm" $? 0
contains "and their lack is said" "$(json off/meta.json '.notes[]')" "were not made"

# A cgroup that was removed while page cache is charged to it: the kernel refuses to age it.
mkdir "$group/dead"
(echo 0 >"$group/dead/cgroup.procs" && head -c 200M /dev/zero >/var/tmp/cached && cat /var/tmp/cached >/dev/null)
rmdir "$group/dead"

check "the whole system is recorded" \
  "$LOWTIDE" record --system --monitor mglru --max-overhead 100% --duration 17s --out system
between "and its working set of 5 s is known, removed cgroups or not" "$(median_reading system 5)" $((60 * mib)) $((200 * mib))
stop "$program"
wait_for 10 rmdir "$group/a/b" 2>/dev/null
rm -f /var/tmp/cached*
rmdir "$group/a" "$group"
[ "$was" = "$(cat "$switch")" ] || echo "$was" >"$switch"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
