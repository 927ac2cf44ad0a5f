#!/usr/bin/env bash
# Limits as they are pasted, set by a systemd, and the agent as its unit: a systemd in name spaces of its own, as in a
# container.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
need "cgroup v2" "budgets are tried under systemd" || exit 0
need "command systemd-run" "budgets are tried under systemd" || exit 0
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
group=/sys/fs/cgroup/lowtide-test-systemd
mkdir "$group"
# Only that systemd itself lives in its cgroup, whose memory it hands down.
# shellcheck disable=SC2016  # expanded by the inner shell
start unshare --mount --pid --fork --kill-child sh -c 'echo 0 >"$1/cgroup.procs" && exec unshare --cgroup sh -c "
  mount -t proc proc /proc && mount -t tmpfs -o mode=755 tmpfs /run && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
    container=other exec /lib/systemd/systemd --unit=basic.target --log-target=null"' sh "$group" >systemd.log 2>&1
unshared=$started
manager() { pgrep -P "$unshared" -x systemd; }
enter() { nsenter -t "$(manager)" --mount --pid --cgroup -- "$@"; }
# inside [PROPERTY]... -- COMMAND...: in a scope of that systemd.
inside() { enter systemd-run --scope --quiet --collect "$@"; }
if ! wait_for 60 inside -- true 2>/dev/null; then
  not_ok "systemd starts" "$(cat systemd.log)"
  exit
fi
ok "systemd starts"
inside -- "$LOWTIDE" budget --json --out "$tmp/record" -- "$PATTERN" /patterns/tight.toml --seconds 3 >record.json 2>record.err
inside -- "$LOWTIDE" budget "$tmp/record" --verify --runs 1 --json >verified.json 2>verify.err
equals "budgets are tried under it" $? 0
contains "and it is said who sets the limits" "$(<verify.err)" "limits are set by systemd-run --scope"
own='.verify.tried[] | select(.mechanism == "lowtide" and (.swap | not))'
equals "what is pasted does not kill" "$(json verified.json "$own | .failed")" 0
# Half of what it needs, set by the same way: the limit is in force.
half=$(json record/summary.json '.answer.no_swap_bytes / 2 | floor')
inside -p "MemoryMax=$half" -p MemorySwapMax=0 -- "$PATTERN" /patterns/tight.toml --seconds 3 >half.out 2>&1
equals "half of it does" $? 137 || sed 's/^/# /' half.out

# The unit of the package, and nothing that it may not do is missed.
units=/run/systemd/system log=/lowtide-agent.log
sed -e "s|/usr/bin/lowtide|$LOWTIDE|" -e "/^\[Service\]/a StandardError=append:$log" \
  /lowtide/packaging/systemd/lowtide-agent.service >lowtide-agent.service
listens() { printf 'listen = "%s"\n[[workload]]\ncgroup = "system.slice/idle.scope"\n' "$1" >/etc/lowtide/agent.toml; }
mkdir -p /etc/lowtide && listens 127.0.0.1:9465
modprobe zram && echo 1G >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
enter mkdir -p "$units" && enter tee "$units/lowtide-agent.service" <lowtide-agent.service >/dev/null
enter tee "$units/lowtide-agent.socket" </lowtide/packaging/systemd/lowtide-agent.socket >/dev/null && enter systemctl daemon-reload
start nsenter -t "$(manager)" --mount --pid --cgroup -- \
  systemd-run --scope --quiet --collect --unit=idle -- "$PATTERN" /patterns/fixed.toml --seconds 120
check "the unit of the package starts" enter systemctl start lowtide-agent
check "its page is answered though it has no network" enter "$LOWTIDE" top --once --url http://127.0.0.1:9465
check "its agent reclaims what is idle" wait_for 100 grep -q '^reclaim.*idle.scope' "$log"
agent=$(pgrep -f "^$LOWTIDE agent --config /etc" | head -n 1)
field() { sed -n "s/^$1:\t//p" "$2"; }
for thread in /proc/"$agent"/task/*; do
  [ "$(<"$thread/comm")" != http ] || answers=$thread/status
done
equals "who answers its page has no capability" "$(field CapEff "$answers")" 0000000000000000
equals "and a filter of its own beside the unit's" \
  $(($(field Seccomp_filters "$answers") - $(field Seccomp_filters "/proc/$agent/status"))) 1
equals "and lacks no permission" "$(grep -i 'permi\|denied' "$log")" ""
sed -n 's/^sampling/# &/p' "$log"
check "and ends when it is asked to" enter systemctl stop lowtide-agent
contains "by itself" "$(enter systemctl show --property=Result lowtide-agent)" success

# refused ADDRESS: the agent's reason not to start.
refused() {
  : >"$log"
  listens "$1"
  enter systemctl start lowtide-agent 2>/dev/null
  enter systemctl stop lowtide-agent 2>/dev/null
  cat "$log"
}
contains "an address that the socket unit does not have is refused" "$(refused 127.0.0.1:9466)" "the socket unit has 127.0.0.1:9465"
contains "a socket that nobody answers is reported" "$(refused unix:/run/lowtide/page)" "a socket unit listens on 127.0.0.1:9465"
enter systemctl stop lowtide-agent.socket 2>/dev/null
enter rm "$units/lowtide-agent.socket" && enter systemctl daemon-reload
contains "and a page where nobody can come is refused" "$(refused 127.0.0.1:9465)" "nobody can come there"
stop "$started"
swapoff /dev/zram0
stop "$unshared"
for _ in {1..50}; do
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
  [ -d "$group" ] || break
  sleep 0.1
done
check "nothing is left of it" test ! -d "$group"
