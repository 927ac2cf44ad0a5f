#!/bin/bash
# PID 1 of the guest once the payload is there: readies the machine, runs /vm/command, reports, powers off.
# The ports, in the order in which vm/run makes them: standard output, standard error, report, files.

out=/dev/vport0p1 err=/dev/vport0p2 report=/dev/vport0p3 files=/dev/vport0p4
export HOME=/root LANG=C.UTF-8 TERM=dumb

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo '+memory +io +cpu +pids' >/sys/fs/cgroup/cgroup.subtree_control
echo lowtide-vm >/proc/sys/kernel/hostname
ip link set lo up
ln -sfn /proc/self/fd /dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -sfn "/proc/self/fd/${n%:*}" "/dev/${n#*:}"; done

# Modules in 6.1, built in later.
modprobe -q -a virtio_pci virtio_console
for _ in {1..600}; do
  [ ! -c "$files" ] || break
  sleep 0.05
done
# PID 1 ending is a kernel panic, which vm/run reports.
exec 3>"$report" || exit
printf 'booted %s\n' "$(cut -d' ' -f1 /proc/uptime)" >&3

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
