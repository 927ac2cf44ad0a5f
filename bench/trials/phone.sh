#!/usr/bin/env bash
# Eight apps on a small phone, of which one at a time is in the foreground: kills and start-up times with and without the
# agent's life cycle. See phone.py for the rules.
#
# Environment: ROUNDS (1), ORDERS (round,back), APPS (8), CYCLES (3), ANON_MIB, FILE_MIB, STAY_S (each app's size, and how
# long it is in the foreground), SPARE_MIB (what is kept free by killing), SWAP (512M), PREFETCH (false: fetch what an app
# used when it comes back), LOWTIDE.
# PHONE_MIB: the phone is a memory cgroup of that size, on a machine that has more, instead of the machine.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in a trap
with_swap "${SWAP:-512M}" "$trials/phone.sh" "$@"
work=$(mktemp -d -p "${TRIAL_DISK:-/var/tmp}" lowtide-trial.XXXXXX)
swappiness=$(cat /proc/sys/vm/swappiness)
ended=0
trap 'ended=$?; echo "$swappiness" >/proc/sys/vm/swappiness; end_groups; rm -rf -- "$work"; (exit "$ended"); finish_test' EXIT
make_groups || exit 1
if [ -n "${PHONE_MIB:-}" ]; then
  limit=memory.max
  [ -e "$groups/$limit" ] || limit=memory.limit_in_bytes
  echo "${PHONE_MIB}M" >"$groups/$limit" || exit 1
fi
# As phones have it: what is compressed in memory is as cheap to have back as a file.
echo 100 >/proc/sys/vm/swappiness

cat >"$tmp/agent.toml" <<END
every = "1s"
stop_file = "$tmp/stop"
state_file = ""
[[workload]]
cgroup = "$group_path/app-*"
policy = "none"
[policy.phone.lifecycle]
prefetch = ${PREFETCH:-false}
[lifecycle]
policy = "phone"
socket = "$tmp/socket"
END

number=0
for ((round = 1; round <= ${ROUNDS:-1}; round++)); do
  for order in $(tr ',' ' ' <<<"${ORDERS:-round,back}"); do
    # The two take turns in being first.
    with=(0 1)
    [ $((number % 2)) -eq 0 ] || with=(1 0)
    number=$((number + 1))
    for agent_too in "${with[@]}"; do
      options=()
      if [ "$agent_too" -eq 1 ]; then
        start_agent "$tmp/agent.toml" || { skip phone "an agent that works here: $(tail -n 1 "$tmp/agent.log")"; exit 0; }
        options=(--socket "$tmp/socket")
      fi
      python3 "$trials/phone.py" run --order "$order" --groups "$groups" --path "$group_path" --folder "$work" \
        --lowtide "$LOWTIDE" "${options[@]}" >>"$tmp/results" || exit 1
      [ "$agent_too" -eq 0 ] || stop "$agent"
      [ -z "${TRIAL_LOGS:-}" ] || { mkdir -p "$TRIAL_LOGS" && cp "$tmp/agent.log" "$TRIAL_LOGS/phone-$order-$round.log"; }
    done
  done
done
python3 "$trials/phone.py" table "$tmp/results"
