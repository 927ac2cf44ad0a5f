#!/usr/bin/env bash
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
working_set() { json "$1/summary.json" ".working_set[] | select(.window_s == $2) | .p50_bytes"; }

check "64 MiB in use of 512 are recorded" run fixed fixed 26
equals "by generations" "$(json fixed/summary.json .monitor.backend)" mglru
between "their working set of 1 s" "$(working_set fixed 1)" $((60 * mib)) $((70 * mib))
between "and of 5 s" "$(working_set fixed 5)" $((60 * mib)) $((70 * mib))
# An average over the rounds, the first of which saw all memory being made.
between "what was idle for 5 s" "$(json fixed/summary.json '.cold[] | select(.age_s == 5) | .anon_bytes')" \
  $((300 * mib)) $((460 * mib))

# A cgroup of ours with two levels below it, the program at the lowest.
group=/sys/fs/cgroup/lowtide-test-$$
mkdir "$group" && echo +memory >"$group/cgroup.subtree_control" && mkdir "$group/a"
echo +memory >"$group/a/cgroup.subtree_control" && mkdir "$group/a/b"
start sh -c "echo 0 >$group/a/b/cgroup.procs; exec $PATTERN $patterns/fixed.toml --seconds 90"
sleep 6
check "a cgroup is recorded with its descendants" \
  "$LOWTIDE" record --cgroup "${group#/sys/fs/cgroup}" --monitor mglru --max-overhead 100% --duration 17s --out tree
# Of 5 s: on a busy machine a tick may come so late that no birth lies a second back.
between "their working set of 5 s" "$(working_set tree 5)" $((60 * mib)) $((70 * mib))
# Whether a window is known for all cgroups at once depends on who else ages them.
check "the whole system is recorded" \
  "$LOWTIDE" record --system --monitor mglru --max-overhead 100% --duration 17s --out system
stop "$started"
wait_for 10 rmdir "$group/a/b" 2>/dev/null
rmdir "$group/a" "$group"
[ "$was" = "$(cat "$switch")" ] || echo "$was" >"$switch"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
