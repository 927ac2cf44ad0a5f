#!/usr/bin/env bash
# Pages in a real browser: what they show first, that all of it fits, what a pointer reads and zooms, and whether people who
# cannot see them well can use them (axe-core).
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib.sh
. "$repository/scripts/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
if ! ensure_command chromium chromium >/dev/null 2>err; then
  skip "pages in a browser" "Debian package chromium"
  exit 0
fi
need "command python3" "pages in a browser" || exit 0

"$LOWTIDE" run --monitor smaps --out run -- python3 "$repository/workloads/phased.py" 100 20 25 >/dev/null 2>err
equals "a program is recorded" $? 0
"$LOWTIDE" compare --configs orig,rec --runs 2 --out compare -- python3 "$repository/workloads/phased.py" 16 4 1 >/dev/null 2>err
equals "a comparison is made" $? 0
awk 'BEGIN {
  for (n = 0; n < 40; n++) {
    printf "kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=2 140731667070976-140731668037632: 0 %d\n", 100 + n / 10, n
    printf "kdamond.0  4452 [000] %.6f: damon:damon_aggregated: target_id=7 nr_regions=2 140731668037632-%.0f: %d 1\n", 100 + n / 10, 140731668037632 + 4096 * (n + 1), n % 20 + 1
  }
}' >perf.txt
check "a recording is imported" "$LOWTIDE" import perf.txt --out imported
check "a scenario is simulated" "$LOWTIDE" simulate --scenario "$repository/workloads/scenarios/web-and-batch.toml" \
  --policy "$repository/workloads/scenarios/policies.toml" --format html --output simulate.html
pages=(run/report.html imported/report.html compare/report.html simulate.html)

# axe-core from npm, in a folder of its own that is kept between runs.
axe=${CARGO_TARGET_DIR:-$repository/target}/test-axe
script=$axe/node_modules/axe-core/axe.min.js
[ -e "$script" ] || npm install --silent --no-fund --no-audit --prefix "$axe" axe-core@4 >/dev/null 2>&1

coproc browser { exec python3 "$repository/tests/native/browser.py" chromium 2>browser.err; }
all_started+=("$browser_PID")
exec {to}>&"${browser[1]}" {from}<&"${browser[0]}"
ask() { printf '%s\n' "$*" >&"$to"; IFS= read -r -t 60 reply <&"$from" || reply="error no answer: $(cat browser.err)"; }
# shows NAME SCRIPT WANTED
shows() { ask "eval $2"; equals "$1" "$reply" "$3"; }
IFS= read -r -t 60 reply <&"$from"
equals "a browser starts" "$reply" ok || { sed 's/^/# /' browser.err; exit 1; }

# What reaches beyond the window and is not in a box that scrolls.
clipped='[...document.querySelectorAll("body *")].filter(e => { const b = e.getBoundingClientRect(); return b.width && b.right > innerWidth + 1 && !e.closest(".scroll"); }).map(e => e.tagName + " " + e.textContent.trim().slice(0, 40)).slice(0, 3).join(", ")'
for page in "${pages[@]}"; do
  ask open "file://$tmp/$page"
  for width in 390 768 1400; do
    ask size "$width" 900
    shows "$page fits $width pixels" "document.documentElement.scrollWidth > innerWidth ? 'wider' : $clipped" ""
  done
  if ! [ -e "$script" ]; then
    skip "$page has no serious fault by axe" "axe-core from npm"
    continue
  fi
  ask run "$script"
  ask "eval document.querySelectorAll('details').forEach(d => { d.open = true; })"
  for width in 390 1400; do
    for dark in on off; do
      ask size "$width" 900
      ask dark "$dark"
      shows "$page has no serious fault by axe, $width pixels, dark $dark" "axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes[0].html).join(', '))" ""
    done
  done
done

ask open "file://$tmp/imported/report.html"
shows "an imported recording has no date of 1970" "/19[67]\d/.test(document.body.textContent)" false
shows "nor a chart without data" "document.querySelectorAll('#timeline svg').length" 0
ask open "file://$tmp/run/report.html"
ask size 1400 900
shows "the bottom line is first" "document.querySelector('main').firstElementChild.textContent.trim().startsWith('Give it')" true
# point CHART ACROSS EVENT: an event of the pointer on the chart of that number, at a share of its width.
point() {
  ask "eval (() => { SVGElement.prototype.setPointerCapture = () => {}; const g = [...document.querySelectorAll('g.plot')].filter(g => g.ownerSVGElement.clientWidth)[$1], r = JSON.parse(g.dataset.plot).rect, s = g.ownerSVGElement, b = s.getBoundingClientRect(), k = b.width / s.viewBox.baseVal.width; s.dispatchEvent(new PointerEvent('$3', { clientX: b.left + k * (r[0] + $2 * (r[2] - r[0])), clientY: b.top + k * (r[1] + r[3]) / 2, pointerId: 1, button: 0, bubbles: true })); })()"
}
point 0 0.5 pointermove
shows "a pointer reads values of more charts than its own" "document.querySelectorAll('.readout:not([hidden])').length > 1" true
shows "with their units" "/resident \d+ MiB/.test([...document.querySelectorAll('.readout')].map(b => b.textContent).join())" true
point 0 0.2 pointerdown
point 0 0.4 pointerup
shows "a drag zooms the time of all" "document.querySelectorAll('.zoomed').length > 2" true
ask key Escape
shows "and Escape shows all again" "document.querySelectorAll('.zoomed').length + ' ' + document.querySelector('.reset').hidden" "0 true"
equals "nothing was blocked, and nothing went wrong" "$(ask problems; echo "$reply")" "[]"
exec {to}>&-
