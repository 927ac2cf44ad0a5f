#!/usr/bin/env bash
# The quick starts of README.md, run as they are written there, side by side: they wait most of the time.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
need root "the quick starts of the README" || exit 0
mkdir "$tmp/bin" && ln -s "$LOWTIDE" "$tmp/bin/lowtide"
# shellcheck disable=SC2016  # expanded by the script
printf '#!/bin/sh\nexec "$@"\n' >"$tmp/bin/sudo" && chmod +x "$tmp/bin/sudo"
# The service: a program of ours, whatever else of that name runs on this machine.
start "$PATTERN" "$patterns/fixed.toml" --seconds 50 >/dev/null
printf '#!/bin/sh\necho %s\n' "$started" >"$tmp/bin/pgrep" && chmod +x "$tmp/bin/pgrep"

# commands NAME: the block after the comment `<!-- quick start: NAME -->`.
commands() {
  awk -v mark="<!-- quick start: $1 -->" '$0 == mark { on = 1; next } on && /^    / { print substr($0, 5); some = 1; next } on && some { exit }' \
    "$repository/README.md"
}

pids=()
names=(service job heatmap node)
equals "every quick start is run" "$(sed -n 's/<!-- quick start: \(.*\) -->/\1/p' "$repository/README.md" | tr '\n' ' ')" "${names[*]} "
for name in "${names[@]}"; do
  mkdir "$tmp/$name" && ln -s "$repository/workloads" "$tmp/$name/workloads"
  (cd "$tmp/$name" && commands "$name" >"$tmp/$name.sh" && PATH=$tmp/bin:$PATH bash -e "$tmp/$name.sh" >"$tmp/$name.out" 2>"$tmp/$name.err") &
  pids+=("$!")
done
for at in "${!names[@]}"; do
  wait "${pids[at]}"
  status=$?
  case ${names[at]} in
    node) equals "quick start node: until its time is over" "$status" 124 ;;
    *) equals "quick start ${names[at]}" "$status" 0 ;;
  esac
done
contains "a service has a limit to paste" "$(cat "$tmp/service.out")" "MemoryMax="
contains "a job has a line to paste" "$(cat "$tmp/job.out")" "#SBATCH --mem="
contains "the agent's file is right" "$(cat "$tmp/node.out")" "OK, 1 workload rule"
