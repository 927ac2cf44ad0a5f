#!/usr/bin/env bash
# The agent samples by DAMON's cohort what DAMON can sample, and leaves page cache to generations.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
[ -d /sys/kernel/mm/damon/admin ] || { skip "an agent with a cohort" "DAMON"; exit; }
modprobe zram 2>/dev/null
before=$(kernel_state)
device=$(cat /sys/class/zram-control/hot_add)
echo 2G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}

# 256 MiB of which 32 MiB are in use, and a program that keeps reading one of two files of 48 MiB.
pattern_of eighth.toml 256M 32M 400 20
in_group job-memory "$PATTERN" eighth.toml
in_group job-files python3 -c '
import time
for name in "used", "unused":
    with open(name, "wb") as file:
        for _ in range(48): file.write(b"x" * (1 << 20))
with open("unused", "rb") as file:
    while file.read(1 << 20): pass
while True:
    with open("used", "rb") as file:
        while file.read(1 << 20): pass
    time.sleep(1)'
big() { [ "$(held job-memory)" -gt $((250 * mib)) ] && [ "$(held job-files)" -gt $((90 * mib)) ]; }
check "both programs have their memory" wait_for 120 big

cat >agent.toml <<EOF2
every = "2s"
ages = ["1s", "5s", "10s"]
listen = "127.0.0.1:9465"
stop_file = "$tmp/stop"
state_file = ""
[[workload]]
cgroup = "$name/job*"
EOF2
touch stop
start "$LOWTIDE" agent --config agent.toml 2>log
running=$started
scrape() { curl -sf http://127.0.0.1:9465/metrics 2>/dev/null || python3 -c '
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9465/metrics").read().decode())'; }
value() { awk -v want="$1" 'index($0, want) == 1 { print $NF }' metrics; }
used="lowtide_agent_workingset_bytes{cgroup=\"/$name/job-memory\",policy=\"auto\",type=\"anon\",window=\"5s\"}"
known() {
  scrape >metrics
  [ -n "$(value "$used")" ]
}
check "the working set is known" wait_for 60 known
contains "one workload has a cohort, the other generations" "$(grep '^sampling' log | tail -1)" 'damon=1 mglru=1'
equals "and nothing failed" "$(grep -c '^error' log)" 0
sleep 12
scrape >metrics
# 4,000 of 65,536 pages, an eighth of them in use: 32 MiB within 8 % with a probability of 95 %, 13 % in all but one of a thousand.
between "the working set is the true one" "$(value "$used")" $((27 * mib)) $((37 * mib))
"$LOWTIDE" run --monitor damon -- true 2>err
equals "DAMON is held by the agent meanwhile" $? 6
contains "and the message names the holder" "$(cat err)" "another lowtide, pid"

rm stop
few() { [ "$(held job-memory)" -lt $((56 * mib)) ]; }
check "what is idle is evicted" wait_for 240 few
between "and what is in use stays" "$(held job-memory)" $((30 * mib)) $((56 * mib))
between "almost nothing refaults" \
  "$(awk '$1 == "workingset_refault_anon" { print $2 }' "$root/job-memory/memory.stat")" 0 2000

# With another source by name, DAMON is free again.
sed -i '1i monitor = "mglru"' agent.toml
kill -HUP "$running"
free() { "$LOWTIDE" run --monitor damon -- true 2>err; }
check "a source can be chosen by name" wait_for 40 free
kill "$running"
wait "$running"
equals "the agent ends when it is to" $? 0

for pid in "${all_started[@]}"; do stop "$pid"; done
rmdir "$root"/*/ "$root"
swapoff "/dev/zram$device" && echo "$device" >/sys/class/zram-control/hot_remove
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
