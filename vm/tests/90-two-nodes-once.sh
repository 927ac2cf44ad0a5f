#!/usr/bin/env bash
# guest: --nodes 2 --memory 1G
# Memory of two speeds: a node with CPUs and one without. What is idle is moved to the slow one, what is in use to the fast one, and what lies where is reported.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
before=$(kernel_state)
names=("a scheme keeps a program within its fast memory" "what a process has on each node is reported"
  "a program is on the slow node" "what is used is moved to the fast node")
if [ "$(cat /sys/devices/system/node/has_memory)" != "0-1" ]; then
  for name in "${names[@]}"; do skip "$name" "two NUMA nodes"; done
  exit 0
fi
# 512 MiB, of which 64 are used over and over.
printf '[[scheme]]\naction = "migrate_cold"\ntarget_node = 1\nage = { min = "3s" }\naccess = { max = "0%%" }\n' >cold.toml
"$LOWTIDE" run --scheme cold.toml --max-overhead 100% --out moved -- "$PATTERN" "$patterns/fixed.toml" --seconds 25 >out 2>err
equals "${names[0]}" $? 0
node() { json moved/summary.json ".nodes[$1].anon.$2"; }
between "of which it began with all" "$(node 0 peak_bytes)" $((400 * mib)) $((600 * mib))
between "and what is idle went to the slow node" "$(node 1 peak_bytes)" $((350 * mib)) $((500 * mib))
contains "which the report has" "$("$LOWTIDE" report moved breakdown --format text)" "By NUMA node"
budget=$("$LOWTIDE" budget moved --slow-tier 3us --json | jq '.budgets[] | select(.mechanism == "lowtide") | .bytes')
between "so much fast memory it needs" "$budget" $((64 * mib)) $((110 * mib))

# All of it begins on the slow node; what is used is moved to the fast one, no faster than the quota says.
cgroup=/sys/fs/cgroup/lowtide-test-$$
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir "$cgroup" && echo 1 >"$cgroup/cpuset.mems"
start sh -c 'echo 0 >"$1/cgroup.procs" && exec "$2" "$3" --seconds 120 >/dev/null' sh "$cgroup" "$PATTERN" "$patterns/fixed.toml"
# on_node N: MiB of that program.
on_node() {
  awk -v node="N$1=" '{ for (i = 1; i <= NF; i++) if (index($i, node) == 1) n += substr($i, 4) } END { print int(n / 256) }' \
    "/proc/$started/numa_maps"
}
# shellcheck disable=SC2317,SC2329  # called by wait_for
is_slow() { [ "$(on_node 1)" -gt 500 ]; }
check "${names[2]}" wait_for 60 is_slow
echo 0-1 >"$cgroup/cpuset.mems"
cat >both.toml <<EOF
[[scheme]]
action = "migrate_hot"
target_node = 0
age = { min = "1s" }
access = { min = "10%" }
quota = { size = "4M", every = "1s" }
[[scheme]]
action = "migrate_cold"
target_node = 1
age = { min = "3s" }
access = { max = "0%" }
EOF
"$LOWTIDE" schemes apply --cgroup "$cgroup" both.toml --duration 12s --max-overhead 100% --out promoted 2>err
equals "${names[3]}" $? 0
between "no faster than its quota" "$(on_node 0)" 8 56
# Once the quota is in force, after ten seconds, it is used once in the two seconds between two snapshots.
"$LOWTIDE" schemes apply --cgroup "$cgroup" both.toml --duration 45s --max-overhead 100% --out rest 2>err
between "until what is in use is on the fast node" "$(on_node 0)" 48 100
stop "$started"
wait_for 20 rmdir "$cgroup"
echo -cpuset >/sys/fs/cgroup/cgroup.subtree_control

start "$PATTERN" "$patterns/fixed.toml" --seconds 30 >/dev/null
# shellcheck disable=SC2317,SC2329  # called by wait_for
is_there() { awk '/^VmRSS/ { exit !($2 > 500 * 1024) }' "/proc/$started/status"; }
check "a process is there as a whole" wait_for 30 is_there
"$LOWTIDE" record --pid "$started" --duration 4s --out pid >/dev/null 2>err
pages=$(awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^N0=/) n += substr($i, 4) } END { print n }' "/proc/$started/numa_maps")
between "${names[1]}" "$(json pid/summary.json '.nodes[] | select(.node == 0) | .anon.peak_bytes + .file.peak_bytes')" \
  $((pages * 4096 * 9 / 10)) $((pages * 4096 * 11 / 10))
"$LOWTIDE" record --system --duration 3s --monitor none --out whole >/dev/null 2>err
equals "and so is the whole machine's" "$(json whole/summary.json '[.nodes[].node] | join(" ")')" "0 1"
stop "$started"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
