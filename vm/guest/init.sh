#!/bin/bash
# PID 1 of the guest, part of its image: readies the machine, waits for the payload of a run, unpacks it and goes on with
# the script from it. Whatever changes often is in the payload, so that it does not rebuild the image. A guest is saved
# while it waits; nothing has been written to its disk by then.
# The ports, in the order in which vm/run makes them: standard output, standard error, report, files.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run
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
  ports=$(echo /dev/vport*p4)
  [ ! -c "$ports" ] || break
  sleep 0.05
done
export ports=${ports%4}
# PID 1 ending is a kernel panic, which vm/run reports.
[ -c "${ports}3" ] && exec 3>"${ports}3" || exit
# Warm, as every run needs them.
cat /usr/bin/{bash,tar,dd,sed,grep,cat,timeout,tail} >/dev/null
printf 'booted %s\n' "$(cut -d' ' -f1 /proc/uptime)" >&3

# The payload is the disk without partitions; disks may come up late. Read past the page cache: while a guest waits to be saved, the
# disk is another run's.
payload() {
  local disk partitions
  for disk in /sys/block/{nvme,vd}*; do
    partitions=("$disk/${disk##*/}"*)
    [ ! -e "$disk" ] || [ -e "${partitions[0]}" ] || echo "/dev/${disk##*/}"
  done
}
until disk=$(payload) && [ -n "$disk" ] && [ -n "$(dd if="$disk" bs=512 count=1 iflag=direct status=none | tr -d '\0')" ]; do sleep 0.2; done
mount -o remount,rw /
dd if="$disk" bs=1M iflag=direct status=none | tar -xf - -C / --keep-directory-symlink --no-overwrite-dir
printf 'started %s\n' "$(cut -d' ' -f1 /proc/uptime)" >&3
exec /vm/start.sh
