#!/usr/bin/env bash
# guest: --no-flusher
# Cgroups named by a pattern, and one that is smaller than its program.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
switch=/sys/kernel/mm/lru_gen/enabled
[ -e "$switch" ] || { skip "cgroups by a pattern" "a kernel with CONFIG_LRU_GEN"; exit; }
before=$(kernel_state)
was=$(cat "$switch")
[ $((was & 1)) -ne 0 ] || echo y >"$switch"
group=/sys/fs/cgroup/lowtide-test-$$
mkdir "$group" && echo +memory >"$group/cgroup.subtree_control"
view() { "$LOWTIDE" report "$1" cgroups --format csv | awk -F, -v cgroup="${group#/sys/fs/cgroup}$2" -v type="$3" \
  -v column="$4" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $1 == cgroup && $3 == type { print $at[column] }'; }
# A pattern: one that is there, one that comes while it is recorded, one that goes, and one that is not meant.
mkdir "$group/p1" "$group/p2" "$group/other"
fill() { (echo 0 >"$group/$1/cgroup.procs" && head -c 20M /dev/zero >"/var/tmp/cached-$1"); }
fill p1; fill p2; fill other
start "$LOWTIDE" record --cgroup "$group/p*" --monitor mglru --max-overhead 100% --duration 17s --out pattern
recorder=$started
sleep 6
rmdir "$group/p2"
mkdir "$group/p3" && fill p3
wait "$recorder"
equals "cgroups that match a pattern are recorded" $? 0
equals "those and no others" \
  "$("$LOWTIDE" report pattern cgroups --format csv | awk -F, -v group="${group#/sys/fs/cgroup}/" 'NR > 1 { sub(group, "", $1); print $1 }' | sort -u | xargs)" "p1 p2 p3"
between "with their page cache" "$(view pattern /p1 file bytes)" $((20 * mib)) $((22 * mib))
"$LOWTIDE" record --cgroup "$group/x*" --monitor mglru --duration 1s --out none 2>err
equals "a pattern that matches nothing is refused" $? 5
contains "and said to be" "$(cat err)" "no memory cgroup matches"

# A program in a cgroup smaller than itself.
"$LOWTIDE" run --limit 32M --monitor none --out small -- sh -c 'head -c 64M /dev/zero | tail -c 64M >/dev/null; head -c 100M /dev/zero >/var/tmp/big; cat /var/tmp/big >/dev/null' 2>err
"$LOWTIDE" report small timeline --format csv >small.csv
biggest() { awk -F, -v column="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR > 1 && $at[column] > most { most = $at[column] } END { print most + 0 }' small.csv; }
between "a limit that was hit is counted" "$(biggest max_events)" 1 1000000
between "and so are the processes that the kernel killed for it" "$(biggest oom_kills)" 1 9

rm -f /var/tmp/cached* /var/tmp/big
rmdir "$group/p1" "$group/p3" "$group/other" "$group"
[ "$was" = "$(cat "$switch")" ] || echo "$was" >"$switch"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
