#!/usr/bin/env bash
# The agent has huge pages split that are mostly empty, and no others; the kernel's own settings come back.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
thp=/sys/kernel/mm/transparent_hugepage
[ -e "$thp/shrink_underused" ] || { skip "huge pages that are split" "Linux 6.12"; exit; }
own=$(cat "$thp/khugepaged/max_ptes_none")
echo always >"$thp/enabled"
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}

# An eighth of the pages of 512 MiB, all in use; and 256 MiB in huge pages that are full.
for pattern in table huge; do
  sed 's/size = "1G"/size = "512M"/; s/^passes_per_second.*/passes_per_second = 1/' \
    "$patterns/$pattern.toml" >"$pattern.toml"
  in_group "$pattern" "$PATTERN" "$pattern.toml" --seconds 600
done
huge() { awk '$1 == "anon_thp" { print $2 }' "$root/$1/memory.stat"; }
big() { [ "$(held table)" -gt $((500 * mib)) ] && [ "$(huge huge)" -gt $((500 * mib)) ]; }
check "a mostly empty table and a full one are in huge pages" wait_for 120 big

cat >agent.toml <<END
listen = "127.0.0.1:9466"
state_file = ""
stop_file = "$tmp/stop"
[[workload]]
cgroup = "$name/*"
policy = "none"
[huge_pages]
most_empty = "50%"
END
start "$LOWTIDE" agent --config agent.toml 2>log
running=$started
few() { [ "$(held table)" -lt $((90 * mib)) ]; }
check "without swap, the zeros of the table are freed" wait_for 60 few
between "and what it uses stays" "$(held table)" $((62 * mib)) $((90 * mib))
between "the full one keeps its huge pages" "$(huge huge)" $((500 * mib)) $((520 * mib))
check "the log says why" wait_for 10 grep -q "^split cgroup=/$name/table bytes=4[0-9]* .*% of 512 MiB in huge pages holds only zeros" log
equals "and nothing else was split" "$(grep -c ^split log)" 1
equals "emptier ones are not made any more" "$(cat "$thp/khugepaged/max_ptes_none")" 256
stop "$running"
equals "at the end the kernel has its own setting back" "$(cat "$thp/khugepaged/max_ptes_none")" "$own"

start "$LOWTIDE" agent --config agent.toml 2>log
running=$started
changed() { [ "$(cat "$thp/khugepaged/max_ptes_none")" = 256 ]; }
check "another agent sets it again" wait_for 20 changed
kill -9 "$running"
wait "$running" 2>/dev/null
check "what a killed one left is found" "$LOWTIDE" recover
equals "and taken back" "$(cat "$thp/khugepaged/max_ptes_none")" "$own"
