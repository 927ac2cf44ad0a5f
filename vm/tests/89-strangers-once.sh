#!/usr/bin/env bash
# guest: --no-flusher
# A user without any rights, at an agent and a guard of root: nothing of root's is written, and nothing of root's waits for a second.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
chmod 755 "$tmp"
null_swap || { skip "strangers" "null_blk"; exit; }
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
name=${root##*/}
untouched=$(kernel_state)
as_stranger=(setpriv --reuid nobody --regid nogroup --clear-groups --)

cat >agent.toml <<EOF
every = "1s"
listen = "unix:$tmp/page"
state_file = "/var/lib/lowtide/state"
[policy.calm.lifecycle]
[lifecycle]
policy = "calm"
socket = "$tmp/socket"
[[workload]]
cgroup = "$name/idle"
policy = "auto"
EOF
pattern_of idle.toml 32M 1M 600 0.2
in_group idle "$PATTERN" idle.toml; idle=$started
start "$LOWTIDE" agent --config agent.toml 2>log; agent=$started
check "an agent works" wait_for 10 test -S page
wait_for 10 test -S socket

# All that a stranger may try, again and again until it is ended; what succeeds is printed.
cat >stranger.py <<'EOF'
import fcntl, os, socket, sys, time

hints, page, idle, watched = sys.argv[1:5]
silent = []


def attempt(what, call):
    try:
        call()
        print("succeeded:", what, flush=True)
    except OSError:
        pass


def peer(path):
    it = socket.socket(socket.AF_UNIX)
    it.setblocking(False)
    it.connect(path)
    silent.append(it)
    return it


def say(text):
    try:
        peer(hints).send(text)
    except OSError:
        pass


def lock(path):
    file = os.open(path, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def folders():
    yield from ("/run/lowtide", "/run/lowtide/undo", "/var/lib/lowtide", "/etc/lowtide", watched)
    for name in ("undo", "lock", "stop", "state", "guard", "calibration.json"):
        for folder in ("/run/lowtide", "/run/lowtide/undo", "/var/lib/lowtide"):
            yield f"{folder}/{name}"


while True:
    for path in folders():
        attempt(f"makes {path}/mine", lambda: os.close(os.open(f"{path}/mine", os.O_CREAT | os.O_WRONLY)))
        attempt(f"links {path}", lambda: os.symlink("/etc/passwd", path))
        if os.path.isfile(path) or path == watched:
            attempt(f"renames {path}", lambda: os.rename(path, path + ".mine"))
        attempt(f"writes {path}", lambda: os.close(os.open(path, os.O_WRONLY)))
        if path.startswith(("/run/lowtide/", "/var/lib/lowtide/")):
            attempt(f"locks {path}", lambda: lock(path))
        try:
            for found in os.listdir(path):
                attempt(f"writes {path}/{found}", lambda: os.close(os.open(f"{path}/{found}", os.O_WRONLY)))
                if path.startswith(("/run/lowtide", "/var/lib/lowtide")):
                    attempt(f"locks {path}/{found}", lambda: lock(f"{path}/{found}"))
        except OSError:
            pass
    attempt("connects to a page that is root's", lambda: peer(page))
    for pid in os.listdir("/proc"):
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read() if pid.isdigit() else b""
            is_another = os.stat(f"/proc/{pid}").st_uid != os.getuid()
        except OSError:
            continue
        if is_another and b"lowtide" in command:
            attempt(f"signals {command!r}", lambda: os.kill(int(pid), 0))
    say(b"{}")
    say(b"\xff" * 60000)
    say(b'{"background": true, "pid": %s}\n' % idle.encode())
    say(b'{"background": true, "pid": -1}\n')
    # Silent peers, as many as it is left.
    for _ in range(100):
        try:
            peer(hints)
        except OSError:
            break
    for old in silent[:-300]:
        old.close()
    del silent[:-300]
    time.sleep(0.5)
EOF
start "${as_stranger[@]}" python3 stranger.py "$tmp/socket" "$tmp/page" "$idle" "$root/idle" >stranger 2>&1
stranger=$started
sleep 3

# longest TIMES COMMAND...: of so many calls, the milliseconds of the longest; "failed" if one fails.
longest() {
  local times=$1 most=0 begun took
  shift
  while [ "$((times -= 1))" -ge 0 ]; do
    begun=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>>err || { echo failed; return; }
    took=$(((${EPOCHREALTIME/./} - begun) / 1000))
    [ "$took" -le "$most" ] || most=$took
    sleep 0.3
  done
  echo "$most"
}
between "of twenty hints of root none takes a second, ms" "$(longest 20 "$LOWTIDE" hint background --pid "$idle" --socket "$tmp/socket")" 0 1000
between "nor does the page, ms" "$(longest 20 "$LOWTIDE" top --once --socket "$tmp/page")" 0 1000
between "nor does recovery, ms" "$(longest 10 "$LOWTIDE" recover)" 0 1000
check "the stranger is still at it" kill -0 "$stranger"
"${as_stranger[@]}" "$LOWTIDE" hint background --pid "$idle" --socket "$tmp/socket" 2>said
equals "a hint of the stranger about a process of root is refused" "$([ $? -ne 0 ]; echo $?)" 0
stop "$agent"
equals "the agent ends well" "$(tail -n 1 log | cut -d' ' -f1)" ended

# The guard, with grants to take back.
echo 100M >"$root/memory.max"
pattern_of all.toml 80M 80M 100000 20
in_group one "$PATTERN" all.toml; one=$started
in_group two "$PATTERN" all.toml; two=$started
start "$LOWTIDE" guard --cgroup "$name/[ot]*" --means pause 2>>log; guard=$started
paused() { grep -qx 1 "$root"/*/cgroup.freeze; }
released() { ! paused; }
check "beside the stranger a guard pauses one of two" wait_for 30 paused
kill -9 "$guard"
wait "$guard" 2>/dev/null
begun=${EPOCHREALTIME/./}
wait_for 5 released
between "and its watchdog releases it as soon as ever, ms" $(((${EPOCHREALTIME/./} - begun) / 1000)) 0 1000
check "recovery finds nothing" "$LOWTIDE" recover
stop "$stranger"
equals "nothing that the stranger tried succeeded" "$(sort -u stranger)" ""
stop "$one"; stop "$two"; stop "$idle"
rmdir "$root"/* "$root" 2>/dev/null
equals "nothing is left" "$(kernel_state)" "$untouched"
swapoff /dev/nullb0 && modprobe -r null_blk
