#!/usr/bin/env bash
# systemd-oomd beside programs that run together (the configuration `oomd` of workloads/mixes.toml), configured to watch their cgroup,
# $LOWTIDE_CGROUP. It is where Debian has it, or in /opt/oomd with its library. Ends with it.

set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
oomd=/usr/lib/systemd/systemd-oomd
if [ -x /opt/oomd/systemd-oomd ]; then
  oomd=/opt/oomd/systemd-oomd
  export LD_LIBRARY_PATH=/opt/oomd
fi
[ -x "$oomd" ] || { echo "oomd.sh: there is no systemd-oomd" >&2; exit 1; }
mkdir -p /run/systemd/oom /run/dbus
python3 "$here/oomd.py" "${LOWTIDE_CGROUP#/sys/fs/cgroup}" &
trap 'kill %1' EXIT
for _ in {1..50}; do
  [ ! -S /run/systemd/io.system.ManagedOOM ] || break
  sleep 0.1
done
SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console "$oomd"
