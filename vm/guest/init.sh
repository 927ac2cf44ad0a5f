#!/bin/bash
# PID 1 of the guest, part of its image: mounts what everything needs, unpacks the payload of this run and goes on with
# the script from it. Whatever changes often is in the payload, so that it does not rebuild the image.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
# Before the payload is unpacked, or they would hide what it puts there.
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run

# The payload is the disk without partitions. The two disks may come up in either order, and late.
while :; do
  for disk in /sys/block/nvme*; do
    [ -e "$disk" ] || continue
    partitions=("$disk/${disk##*/}"p*)
    [ -e "${partitions[0]}" ] || break 2
  done
  sleep 0.1
done
tar -xf "/dev/${disk##*/}" -C / --keep-directory-symlink --no-overwrite-dir
exec /vm/start.sh
