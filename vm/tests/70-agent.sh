#!/usr/bin/env bash
# guest: --no-flusher
# The agent on cgroups of version 2, against programs whose working sets are known, with zram for swap.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
switch=/sys/kernel/mm/lru_gen/enabled
was=$(cat "$switch" 2>/dev/null) || { skip "the agent" "a kernel with CONFIG_LRU_GEN"; exit; }
[ -e /sys/fs/cgroup/memory.reclaim ] || { skip "the agent" "memory.reclaim"; exit; }
modprobe zram 2>/dev/null
before=$(kernel_state)
[ $((was & 1)) -ne 0 ] || echo y >"$switch"
device=$(cat /sys/class/zram-control/hot_add)
echo 2G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}

agent() { start "$LOWTIDE" agent --config agent.toml "$@" 2>log; running=$started; }
logged() { grep -c "^$1" log; }

# By generations: 72-agent-cohort-once is about DAMON, which needs the TLB flusher here.
cat >agent.toml <<EOF
every = "2s"
ages = ["1s", "5s"]
monitor = "mglru"
listen = "127.0.0.1:9465"
exclude = ["$name/spared"]
stop_file = "$tmp/stop"
state_file = "$tmp/state"
[[workload]]
cgroup = "$name/job*"
[[workload]]
cgroup = "$name/spared"
[[workload]]
cgroup = "$name/app*"
policy = "none"
[lifecycle]
idle_after = "10s"
socket = "$tmp/socket"
EOF
check "a right file is said to be right" "$LOWTIDE" agent --config agent.toml --check
sed 's/every/evry/' agent.toml >wrong.toml
"$LOWTIDE" agent --config wrong.toml --check 2>err
equals "a wrong one is refused" $? 2
contains "with the place of the mistake" "$(cat err)" "wrong.toml:1:1: unknown field \`evry\`"

# What they use they use four times a second: more takes most of the test's time.
sed 's/passes_per_second = 20/passes_per_second = 4/' "$patterns/fixed.toml" >calm.toml
in_group job-idle "$PATTERN" calm.toml --seconds 400
in_group spared "$PATTERN" calm.toml --seconds 400
# A dry run sees and decides, and takes nothing.
agent --dry-run
wait_for 150 grep -q '^reclaim' log
stop "$running"
contains "a dry run says what it would do" "$(cat log)" 'stopped="dry run"'
between "and takes nothing" "$(held job-idle)" $((500 * mib)) $((600 * mib))

touch stop
agent
sleep 3
"$LOWTIDE" agent --config agent.toml 2>err
equals "a second agent is refused" $? 6
sleep 15
equals "nothing is taken while the stop file is there" "$(logged reclaim)" 0
rm stop
few() { [ "$(held "$1")" -lt $((110 * mib)) ]; }
wait_for 240 few job-idle
between "of 512 MiB what is in use stays" "$(held job-idle)" $((60 * mib)) $((110 * mib))
between "almost nothing refaults" \
  "$(awk '$1 == "workingset_refault_anon" { print $2 }' "$root/job-idle/memory.stat")" 0 2000
between "what is excluded is left alone" "$(held spared)" $((500 * mib)) $((600 * mib))
scrape() { curl -sf http://127.0.0.1:9465/metrics 2>/dev/null || python3 -c '
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9465/metrics").read().decode())'; }
value() { awk -v want="$1" 'index($0, want) == 1 { print $NF }' metrics; }
# Figures are those of the last round, which may have begun before the eviction ended.
paged_out="lowtide_agent_swapped_bytes{cgroup=\"/$name/job-idle\""
published() {
  scrape >metrics
  [ "$(value "$paged_out" | cut -d. -f1)" -gt $((400 * mib)) ]
}
check "metrics report what was paged out" wait_for 20 published
between "metrics report the true working set" \
  "$(value "lowtide_agent_workingset_bytes{cgroup=\"/$name/job-idle\",policy=\"auto\",type=\"anon\",window=\"5s\"}")" \
  $((60 * mib)) $((70 * mib))
between "and what is saved, net" "$(value "lowtide_agent_saved_net_bytes{cgroup=\"/$name/job-idle\"")" \
  $((300 * mib)) $((460 * mib))

equals "lowtide's own reclaim is not taken for another program's" "$(grep -c 'somebody else' log)" 0

# What is frozen, or does nothing, is in the background.
in_group app-frozen python3 -c '
import time
memory = bytearray(b"x") * (150 << 20)
while True:
    for page in range(0, 64 << 20, 4096): memory[page]
    time.sleep(0.5)'
in_group app-idle python3 -c 'import time; memory = bytearray(b"x") * (100 << 20); time.sleep(300)'
full() { [ "$(held app-frozen)" -gt $((150 * mib)) ] && [ "$(held app-idle)" -gt $((100 * mib)) ]; }
wait_for 40 full
echo 1 >"$root/app-frozen/cgroup.freeze"
stowed() { [ "$(held "$1")" -lt $((24 * mib)) ]; }
check "what is frozen is paged out" wait_for 90 stowed app-frozen
check "what does nothing is paged out" wait_for 60 stowed app-idle
echo 0 >"$root/app-frozen/cgroup.freeze"
hot() { [ "$(held app-frozen)" -gt $((60 * mib)) ]; }
check "a continued workload has its memory again" wait_for 40 hot

# Settings are read again; a mistake changes nothing.
echo 'evry = 1' | cat - agent.toml >new.toml && mv agent.toml right.toml && mv new.toml agent.toml
kill -HUP "$running"
wait_for 5 grep -q '^error' log
contains "a mistake on reload is said" "$(cat log)" "nothing was changed"
mv right.toml agent.toml
kill -HUP "$running"
check "and a right file is taken" wait_for 5 grep -q '^reloaded' log

# Workloads come and go, and paths are used again.
in_group job-late sleep 5
sleep 8
rmdir "$root/job-late"
in_group job-late sleep 60
sleep 12
check "an agent outlives cgroups that come and go" kill -0 "$running"
kill -9 "$running"
wait "$running" 2>/dev/null
printf '[telemetry]\ndir = "%s"\nhost = "guest"\n' "$tmp/sent" >>agent.toml
agent
sleep 6
check "one that was killed is followed by another" kill -0 "$running"
kill "$running"
wait "$running"
equals "which ends on a signal" $? 0
check "its telemetry can be replayed" "$LOWTIDE" fleet replay sent --json --output sent.json
between "of all workloads" "$(jq '.policies[0].had_bytes | floor' sent.json)" $((20 * mib)) $((2000 * mib))

for pid in "${all_started[@]}"; do stop "$pid"; done
rmdir "$root"/*/ "$root"
swapoff "/dev/zram$device" && echo "$device" >/sys/class/zram-control/hot_remove
[ $((was & 1)) -ne 0 ] || echo n >"$switch"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
