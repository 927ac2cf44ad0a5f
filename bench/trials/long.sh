#!/usr/bin/env bash
# A program of minutes that uses a part of its memory, over and over, as fast as it can or at a pace: what the agent and schemes
# evict of it, and by how much it does less. Run by `lowtide compare`.
#
# Environment: ROUNDS (1), CONFIGS (orig,prcl,auto), SECONDS_EACH (180), USED (64M of 512M), PASSES ("max": over it, a second),
# SWAP (1G), PATTERN, LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
sed "s/^passes_per_second = .*/passes_per_second = ${PASSES:-\"max\"}/; s/size = \"64M\"/size = \"${USED:-64M}\"/" \
  "$patterns/fixed.toml" >"$tmp/part.toml"
cat >"$tmp/suite.toml" <<END
name = "long"
[[program]]
name = "part"
command = ["$PATTERN", "$tmp/part.toml", "--seconds", "${SECONDS_EACH:-180}"]
figure = '"touches":([0-9]+)'
figure_name = "touches"
[[config]]
name = "auto"
agent = "$tmp/auto.toml"
END
cat >"$tmp/auto.toml" <<'END'
state_file = ""
[[workload]]
cgroup = "**/lowtide-*"
END
modprobe -q zram 2>/dev/null
[ -e /sys/class/zram-control/hot_add ] || { skip long "zram (modprobe zram)"; exit 0; }
"$LOWTIDE" compare --suite "$tmp/suite.toml" --configs "${CONFIGS:-orig,prcl,auto}" --runs "${ROUNDS:-1}" \
  --swap "zram:${SWAP:-1G}" --out "$tmp/long" --format markdown
# Why there was not more or less, for whoever wants to know.
[ -z "${TRIAL_LOGS:-}" ] || cat "$tmp"/long/*.agent
