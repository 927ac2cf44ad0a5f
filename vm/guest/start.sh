#!/bin/bash
# PID 1 of the guest once the payload is there: runs /vm/command, reports, powers off.

out=${ports:?}1 err=${ports}2 files=${ports}4

[ -e /vm/flush-interval-us ] && /vm/flusher "$(cat /vm/flush-interval-us)" 3>&- &

# Through pipes: a port can be open only once, and programs may open /dev/stderr again.
cd /root || exit
setsid bash /vm/command </dev/null > >(exec cat >"$out") 2> >(exec cat >"$err") 3>&-
status=$?

# What the command left running may hold its pipes open: give the copying a moment to finish, not for ever.
for _ in {1..20}; do
  pgrep -x -P 1 cat >/dev/null || break
  sleep 0.1
done

# Relative names, and only those that exist: one missing file must not cost the others.
cd / || exit
while IFS= read -r path; do
  if [ -e "$path" ]; then printf '%s\n' "${path#/}"; else printf 'missing %s\n' "$path" >&3; fi
done </vm/get >/run/vm-get
[ -s /run/vm-get ] && tar -chf "$files" -T /run/vm-get

printf 'exit %s\n' "$status" >&3
exec 3>&-
echo o >/proc/sysrq-trigger
sleep 60
