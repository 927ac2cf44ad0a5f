#!/usr/bin/env bash
# Huge pages by access: what of their speed is kept on a program that gains by them, and what of their waste is removed on one
# that is larger with them. Beside small pages and huge pages everywhere. Run by `lowtide compare`.
#
# Environment: ROUNDS (1), CONFIGS (orig,thp,ethp-tuned,agent), SECONDS_EACH (60), PATTERN, LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
program() {
  cat <<END
[[program]]
name = "$1"
command = ["$PATTERN", "$patterns/$1.toml", "--seconds", "${SECONDS_EACH:-60}"]
figure = '"touches":([0-9]+)'
figure_name = "touches"
END
}
{
  echo 'name = "huge pages"'
  program tlb
  program table
  printf '[[config]]\nname = "agent"\nagent = "%s"\n' "$tmp/agent.toml"
} >"$tmp/suite.toml"
cat >"$tmp/agent.toml" <<'END'
state_file = ""
ages = ["1s", "10s", "30s"]
[[workload]]
cgroup = "**/lowtide-*"
policy = "huge"
[policy.huge.schemes]
use = ["ethp-tuned"]
END
"$LOWTIDE" compare --suite "$tmp/suite.toml" --configs "${CONFIGS:-orig,thp,ethp-tuned,agent}" --runs "${ROUNDS:-1}" \
  --out "$tmp/huge" --format markdown
# Speed kept and waste removed, from the medians of the rounds.
python3 - "$tmp/huge/runs.jsonl" <<'END'
import json, statistics, sys

runs = [json.loads(line) for line in open(sys.argv[1])]
def median(program, config, key):
    values = [run[key] for run in runs if (run["program"], run["config"]) == (program, config) and run.get(key) is not None]
    return statistics.median(values)
for config in sorted({run["config"] for run in runs} - {"orig", "thp"}):
    orig, huge, own = (median("tlb", name, "figure") for name in ("orig", "thp", config))
    small, wide, now = (median("table", name, "rss_bytes") for name in ("orig", "thp", config))
    print(f"{config}: keeps {100 * (own - orig) / (huge - orig):.0f} % of a gain of {100 * (huge / orig - 1):.0f} %, "
          f"removes {100 * (wide - now) / (wide - small):.0f} % of a waste of {100 * (wide / small - 1):.0f} %")
END
