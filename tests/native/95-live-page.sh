#!/usr/bin/env bash
# The agent's live page in a real browser, `lowtide top`, and who is answered at all.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib.sh
. "$repository/scripts/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
need root "the live page and lowtide top" || exit 0
need "command python3" "the live page and lowtide top" || exit 0
before=$(kernel_state)
groups=/sys/fs/cgroup
have "cgroup v1" && groups=/sys/fs/cgroup/memory
own=lowtide-test-$$
odd="odd <img src=x onerror=document.title=1>"
device=
give_back() {
  local pid
  for pid in "${all_started[@]}"; do stop "$pid"; done
  all_started=()
  rmdir "$groups/$own/app" "$groups/$own/$odd" "$groups/$own" 2>/dev/null
  [ -n "$device" ] || return 0
  swapoff "/dev/zram$device" 2>/dev/null
  echo "$device" >/sys/class/zram-control/hot_remove 2>/dev/null
  device=
}
ended=0
trap 'ended=$?; give_back; (exit "$ended"); finish_test' EXIT
mkdir -p "$groups/$own/app" "$groups/$own/$odd" || { skip "the live page and lowtide top" "a writable memory cgroup"; exit 0; }
if [ -e /sys/class/zram-control/hot_add ]; then
  device=$(cat /sys/class/zram-control/hot_add)
  echo 1G >"/sys/block/zram$device/disksize" && mkswap "/dev/zram$device" >/dev/null && swapon "/dev/zram$device"
fi

# --- who is answered, and what is refused

workloads="every = \"1s\"
[[workload]]
cgroup = \"$own/*\"
policy = \"none\"
[lifecycle]
socket = \"$tmp/hints\""
config() { printf 'listen = "%s"\n%s\n' "$1" "$workloads" >agent.toml; cat >>agent.toml; }
agent() {
  start "$LOWTIDE" agent --config agent.toml "$@" 2>log
  running=$started
  wait_for 10 grep -q '^listening' log || { not_ok "the agent starts" "$(cat log)"; exit 1; }
}
url() { sed -n 's/^listening address=//p' log; }
status() { curl -sS --output answer --write-out '%{http_code}' "$@"; }

"$LOWTIDE" top --url http://127.0.0.1:1 2>err
equals "without an agent, top is an error" $? 5
contains "that says which address and what to do" "$(cat err)" "http://127.0.0.1:1: Connection refused"
config 0.0.0.0:9465 </dev/null
"$LOWTIDE" agent --config agent.toml --check 2>err
equals "an address beyond this machine takes a token and TLS" $? 2
contains "and says which settings" "$(cat err)" "give token_file, certificate, key in [serve]"
echo 0123456789abcdef0123456789abcdef >token
chmod 644 token
printf '[serve]\ntoken_file = "%s/token"\n' "$tmp" | config 127.0.0.1:0
"$LOWTIDE" agent --config agent.toml --check 2>err
equals "a token that others may read is refused" $? 2
contains "with what to do" "$(cat err)" "chmod 600"

config "unix:$tmp/http.sock" </dev/null
agent --dry-run
equals "a socket is for its owner alone" "$(stat -c %a http.sock)" 600
sleep 1.5
contains "top speaks through it" "$("$LOWTIDE" top --socket http.sock)" "/$own/app"
equals "and prints the same as JSON" "$("$LOWTIDE" top --socket http.sock --json | jq -r .agent.dry_run)" true
stop "$running"
equals "its file goes with the agent" "$(ls http.sock 2>/dev/null)" ""

if have "command openssl" && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
  -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' -addext 'basicConstraints=critical,CA:FALSE' \
  -keyout key.pem -out certificate.pem 2>err; then
  chmod 600 token key.pem
  printf '[serve]\ntoken_file = "%s"\ncertificate = "%s"\nkey = "%s"\n' \
    "$tmp/token" "$tmp/certificate.pem" "$tmp/key.pem" | config 127.0.0.1:0
  agent
  "$LOWTIDE" top --once --url "$(url)" --certificate certificate.pem >/dev/null 2>err
  equals "without the token nothing is served" $? 4
  check "with token and certificate it is" \
    "$LOWTIDE" top --once --url "$(url)" --certificate certificate.pem --token-file token
  equals "curl agrees" "$(status --cacert certificate.pem -H "Authorization: Bearer $(cat token)" "$(url)metrics")" 200
  equals "and is refused with another" "$(status --cacert certificate.pem -H 'Authorization: Bearer x' "$(url)api/workloads")" 401
  stop "$running"
else
  skip "TLS and a token" "command openssl"
fi

# --- the real agent

config 127.0.0.1:0 </dev/null
agent
at=$(url)
equals "another name than this machine's is refused" "$(status -H 'Host: evil.example' "${at}api/workloads")" 403
equals "and so is everything but reading" "$(status -X POST "${at}api/workloads")" 405
# shellcheck disable=SC2016  # expanded by the inner shell
start sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$groups/$own/app" \
  "$PATTERN" "$patterns/fixed.toml" --seconds 300 >/dev/null
row() { curl -sS "${at}api/workloads" | jq -r ".workloads[] | select(.name == \"/$own/app\") | .$1"; }
full() { [ "$(row memory_bytes | cut -d. -f1)" -gt $((500 * mib)) ]; }
check "a workload's memory is shown" wait_for 20 full
if [ -n "$device" ]; then
  "$LOWTIDE" hint background --cgroup "$own/app" --socket "$tmp/hints"
  stowed() { [ "$(row last_action.what)" = stow ]; }
  check "its actions are shown" wait_for 20 stowed
fi
contains "top shows it, without a terminal as a table" "$("$LOWTIDE" top --url "$at" | tail -n 2)" "/$own/app"

# In a terminal: it is given back as it was, however it ends.
if cat >terminal.py <<'EOP'
import fcntl, os, pty, re, select, signal, struct, sys, termios, time
def run(keys, end=None):
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], ["lowtide", "top", "--url", sys.argv[2]])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    out = b""
    def hear(seconds):
        nonlocal out
        until = time.time() + seconds
        while time.time() < until:
            try: out += os.read(fd, 65536) if select.select([fd], [], [], 0.05)[0] else b""
            except OSError: return
    hear(1.5)
    assert not termios.tcgetattr(fd)[3] & termios.ICANON, "it reads keys"
    for key in keys: os.write(fd, key); hear(0.5)
    if end: os.kill(pid, end); hear(0.5)
    assert termios.tcgetattr(fd)[3] & termios.ICANON, "the terminal reads lines again"
    assert out.endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in out[-40:], out[-60:]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return out
# Only what changes is drawn: what is on the screen at the end, from where the cursor was moved to and what was written.
def screen(out):
    rows, row, col = {}, 0, 0
    for part in re.findall(r"\x1b\[(\d+);(\d+)H|\x1b\[[?0-9;]*([A-Za-z])|([^\x1b])", out.decode(errors="replace")):
        if part[0]: row, col = int(part[0]), int(part[1])
        elif part[3]: rows[row, col] = part[3]; col += 1
    return ["".join(rows.get((row, col), " ") for col in range(1, 101)) for row in range(1, 25)]
assert any("Actions, newest first" in row for row in screen(run([b"n", b"\r", b"q"])))
run([b"\x03"]), run([], signal.SIGTERM)
EOP
then check "in a terminal keys work, and it is given back as it was" python3 terminal.py "$LOWTIDE" "$at"; fi

# --- the page

curl -sS "${at}api/workloads" >overview.json
curl -sS "${at}api/workloads/$(row id)" >detail.json
page=("rows are there" "a click shows ages and actions with reasons" "and the curve" "what names hold is only text" \
  "it fits a window of 1280" "it fits a window of 420" "five hundred workloads" "a workload that ended" "no workloads" \
  "a lost connection is said")
check "data of a busy agent has the real one's form" python3 "$repository/tests/native/live_page_data.py" overview.json detail.json . 500
if ! ensure_command chromium chromium >/dev/null 2>err; then
  for title in "${page[@]}"; do skip "the page: $title" "Debian package chromium"; done
  give_back
  exit 0
fi
coproc browser { exec python3 "$repository/tests/native/browser.py" chromium 2>browser.err; }
all_started+=("$browser_PID")
exec {to}>&"${browser[1]}" {from}<&"${browser[0]}"
ask() { printf '%s\n' "$*" >&"$to"; IFS= read -r -t 60 reply <&"$from" || reply="error no answer: $(cat browser.err)"; }
# does NAME COMMAND: ok if the browser says ok.
does() { ask "${@:2}"; equals "$1" "$reply" ok; }
# shows NAME SCRIPT PART
shows() { ask "eval $2"; contains "$1" "$reply" "$3"; }
IFS= read -r -t 60 reply <&"$from"
equals "a browser starts" "$reply" ok || { sed 's/^/# /' browser.err; exit 1; }

ask size 1280 900
does "the page opens" open "$at"
does "the page: ${page[0]}" wait "document.querySelectorAll('tr.row').length === 2"
shows "the page: ${page[3]}" "[...document.querySelectorAll('tr.row button')].map(b => b.textContent).join(' ')" "$odd"
equals "and stays text" "$(ask "eval document.title"; echo "$reply")" "lowtide agent"
does "a row is clicked" click "tr.row[data-id='$(row id)'] td.c-memory"
does "the page: it opens" wait "document.querySelector('tr.detail .ages svg path')"
shows "why there is no curve is said" "document.querySelector('tr.detail').textContent" "idle ages are sampled only where a policy reclaims"
if [ -n "$device" ]; then
  shows "the page: ${page[1]}" "document.querySelector('tr.detail .log').textContent" "it is in the background"
else
  skip "the page: ${page[1]}" zram
fi
# A real agent, and data that this machine cannot measure.
ask fake "/api/workloads many.json"
ask fake "/api/workloads/1000 one.json"
does "the page: ${page[6]}" wait "document.querySelectorAll('tr.row').length === 500"
ask "eval document.querySelector(\"tr.row[data-id='1000'] button\").focus()"
ask key Enter
does "the keyboard opens a row, too" wait "document.querySelector('tr.detail .curve svg path.stroke')"
shows "the page: ${page[2]}" "document.querySelector('.curve svg').getAttribute('aria-label')" "434 MiB costs 0.54 %"
equals "with a row for each idle age" "$(ask "eval document.querySelectorAll('.wide tbody tr').length"; echo "$reply")" 4
equals "ages lie on each other" "$(ask "eval document.querySelectorAll('.ages svg path').length"; echo "$reply")" 6
shows "reasons are only text" "document.querySelector('.log td.long').innerHTML" "&lt;b&gt;or more&lt;/b&gt;"
shows "and why it was cut short" "document.querySelector('.log .stopped').textContent" "stalled for 34 ms"
equals "the row says that it is open" \
  "$(ask "eval document.activeElement.getAttribute('aria-expanded')"; echo "$reply")" true
ask key ArrowDown
shows "arrows go on to the next row" "document.activeElement.closest('tr').dataset.id !== '1000'" true
ask click "th.c-cold button"
shows "a head sorts" "document.querySelector('th[aria-sort]').dataset.key + [...document.querySelectorAll('tr.row')][0].querySelector('.c-cold').textContent" "cold498MiB"
shot() {
  ask size "$1" 900
  does "$2" wait "document.documentElement.scrollWidth <= $1 && document.querySelector('.curve svg').getBoundingClientRect().right <= $1"
  ask shot "$tmp/page-$1.png"
  between "and is drawn" "$(stat -c %s "page-$1.png")" 20000 100000000
}
shot 1280 "the page: ${page[4]}"
ask dark on
shot 420 "the page: ${page[5]}"
ask dark off
ask size 1280 900
ask fake "/api/workloads gone.json"
ask fake "/api/workloads/1000 !"
does "the page: ${page[7]}" wait "document.querySelector('tr.detail').textContent.includes('This workload is gone') && document.querySelector('.curve svg')"
ask fake "/api/workloads stopped.json"
does "the page shows that the agent is stopped" wait "document.querySelector('#mode').textContent === 'stopped' && document.querySelector('#held').textContent.includes('/run/stop<i> is there')"
ask fake "/api/workloads empty.json"
ask click "tr.row button"
does "the page: ${page[8]}" wait "!document.querySelector('#empty').hidden && document.querySelectorAll('tr.row').length === 0"
ask fake "/api/workloads -"
does "the real agent again" wait "document.querySelectorAll('tr.row').length === 2"
equals "nothing was blocked, and nothing went wrong" "$(ask problems; echo "$reply")" "[]"
stop "$running"
does "the page: ${page[9]}" wait "document.querySelector('#lost').textContent.includes('No answer from the agent since') && !document.querySelector('#lost').hidden"
equals "and the last figures stay" "$(ask "eval document.querySelectorAll('tr.row').length"; echo "$reply")" 2
address=${at#http://}
config "${address%/}" </dev/null
agent
does "and the page with it" wait "document.querySelector('#lost').hidden"
exec {to}>&-
give_back
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
