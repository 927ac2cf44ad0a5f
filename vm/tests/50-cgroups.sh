#!/usr/bin/env bash
# guest: --no-flusher
# Cgroups of version 2: below a delegated one without root, removed and made again under the same name, short of memory.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../tests/native/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
modprobe zram 2>/dev/null
before=$(kernel_state)
root=/sys/fs/cgroup/lowtide-test-$$
mkdir "$root" && echo +memory >"$root/cgroup.subtree_control"
reason() { json "$1/meta.json" .end.reason; }

# As systemd delegates: the scope belongs to the user, who has handed memory down and lives in a cgroup below it.
scope=$root/user.slice/app.slice/run-r1.scope
mkdir -p "$scope"
for above in "$root/user.slice" "$root/user.slice/app.slice"; do echo +memory >"$above/cgroup.subtree_control"; done
mkdir "$scope/shell"
chown -R nobody "$scope"
mkdir delegated && chown nobody delegated && chmod o+x "$tmp"
# shellcheck disable=SC2016  # expanded by the inner shell
sh -c 'echo 0 >"$1/shell/cgroup.procs" && echo +memory >"$1/cgroup.subtree_control" && shift && exec setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"' \
  sh "$scope" env XDG_RUNTIME_DIR="$tmp/delegated" "$LOWTIDE" run --max-overhead 100% --out "$tmp/delegated/record" -- \
  "$PATTERN" "$patterns/fixed.toml" --seconds 25 >out 2>err
equals "without root, a program runs below a delegated scope" $? 0
between "in a cgroup of its own, whose peak is known" "$(json delegated/record/summary.json .memory.cgroup.peak_bytes)" \
  $((512 * mib)) $((600 * mib))
between "with a working set by what is permitted" \
  "$(median_reading delegated/record 1)" $((58 * mib)) $((80 * mib))
equals "and the scope is as it was" "$(ls -d "$scope"/*/)" "$scope/shell/"

# A cgroup that goes and comes again is another one.
mkdir "$root/job"
start sh -c "echo 0 >$root/job/cgroup.procs; exec sleep 8"
sleep 1
start "$LOWTIDE" record --cgroup "$root/job" --duration 40s --out gone 2>err
recorder=$started
sleep 8
rmdir "$root/job" && mkdir "$root/job"
start sh -c "echo 0 >$root/job/cgroup.procs; exec sleep 60"
wait "$recorder"
equals "a cgroup that vanished ends its record" "$?-$(reason gone)" 0-ended
stop "$started"
wait_for 5 rmdir "$root/job"

# A file of 96 MiB, read through a mapping again and again in 48 MiB, and 64 MiB of its own, swapped to zram: the time of
# compressing is the guest's own, while its disk may be as fast as the host likes and stall nobody.
# Written before, and away from the cache: dirty pages within so small a limit can be the program's end.
head -c 96M /dev/zero | tr '\0' . >/var/tmp/lowtide-file
sync /var/tmp/lowtide-file
check "a program with less memory than it needs ends well" \
  "$LOWTIDE" run --limit 48M --swap zram:256M --monitor none --out short -- python3 -c '
import mmap, os, time
file = open("/var/tmp/lowtide-file", "rb")
# Pages that are still written back, or wait on a list of some CPU, stay at the first request.
for attempt in range(5):
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    time.sleep(0.2)
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
own = bytearray(64 << 20)
end = time.time() + 6
while time.time() < end:
    for at in range(0, len(pages), 4096):
        pages[at]
    for at in range(0, len(own), 4096):
        own[at] = 1
'
rm /var/tmp/lowtide-file
"$LOWTIDE" report short timeline --format csv >short.csv
last() { awk -F, -v column="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR > 1 && $at[column] > most { most = $at[column] } END { print most + 0 }' short.csv; }
between "pages that come back are counted" "$(last refault_file)" 1000 100000000
# One in two seconds at most; the last pass over the file ends when it does, so the run takes 7 s and more.
between "stalls have rows of their own" "$(last memory_stalls)" 1 $(($(last t_s | cut -d. -f1) / 2 + 1))
between "and pressure is the cgroup's" "$(last memory_some_s)" 0 20
rmdir "$scope/shell" "$scope" "$root/user.slice/app.slice" "$root/user.slice" "$root"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
