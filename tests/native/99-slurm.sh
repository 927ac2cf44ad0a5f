#!/usr/bin/env bash
# Ranks of an MPI program under a real Slurm: a controller and two nodes on this machine. Slurm and MPI are unpacked and laid over /usr
# in a mount namespace of this test's own: nothing is installed, no service is set up.
if [ "${1:-}" != inside ] && [ "$(id -u)" -eq 0 ] && command -v unshare >/dev/null; then
  exec unshare --mount --propagation private bash "$0" inside
fi
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
mib=1048576
names=("every rank has a record" "and knows its run, node and number" "ranks on a node are added up" "the node that sets the number is named"
  "and the rank that needs most" "ranks without a record are missed" "the batch script's line is taken by Slurm"
  "a job's ranks are found by its number")

lacks=
fetch() {
  local packages
  mkdir debs slurm
  # What is installed already is left out; of libpmix-dev only a link is wanted, and nothing that it depends on.
  packages=$(apt-get -s --no-install-recommends install slurmctld slurmd slurm-client python3-mpi4py 2>/dev/null | awk '/^Inst/ { print $2 }')
  # shellcheck disable=SC2086  # names of packages
  (cd debs && apt-get -q download $packages libpmix-dev) >fetch.log 2>&1
}
if ! have root || ! command -v unshare >/dev/null; then
  lacks="root"
elif ! have "command apt-get" || ! { fetch || { rm -rf debs slurm; apt-get -q update >fetch.log 2>&1; fetch; }; }; then
  lacks="Debian mirror"
else
  for deb in debs/*.deb; do dpkg-deb -x "$deb" slurm || lacks="Debian packages that unpack"; done
  mount -t overlay overlay -o "lowerdir=$tmp/slurm/usr:/usr" /usr 2>mount.log || lacks="overlayfs"
  [ -n "$lacks" ] || have "command slurmctld-wlm" || lacks="Debian packages of Slurm"
fi
if [ -n "$lacks" ]; then
  for name in "${names[@]}"; do skip "$name" "$lacks"; done
  exit 0
fi

port=$((20000 + $$ % 20000))
cat >slurm.conf <<END
ClusterName=lowtide
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=$port
CommunicationParameters=NoInAddrAny
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool.%n
TmpFS=$tmp/tmp.%n
SlurmctldPidFile=$tmp/slurmctld.pid
SlurmdPidFile=$tmp/slurmd.%n.pid
SlurmctldLogFile=$tmp/slurmctld.log
SlurmdLogFile=$tmp/slurmd.%n.log
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/none
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 RealMemory=2000
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
mkdir state tmp.n1 tmp.n2
export SLURM_CONF=$tmp/slurm.conf
start slurmctld-wlm -D >/dev/null 2>&1
for node in n1 n2; do start slurmd-wlm -D -N "$node" -d /usr/sbin/slurmstepd-wlm >/dev/null 2>&1; done
# shellcheck disable=SC2317,SC2329  # called by wait_for
idle() { [ "$(sinfo -h -N -t idle -o %N | wc -l)" -eq 2 ]; }
wait_for 20 idle || { not_ok "Slurm's nodes come up" "$(sinfo 2>&1)" "$(tail -n 5 ./*.log)"; exit 1; }

# Each rank uses 32 MiB more than the one before, all of it over and over, for so many seconds.
cat >ranks.py <<'END'
import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
memory = bytearray((32 << 20) * (world.rank + 1))
end = time.monotonic() + float(sys.argv[1])
while world.allreduce(time.monotonic() < end, op=MPI.LAND):
    memory[::4096] = bytes(len(memory) // 4096)
    time.sleep(0.2)
END
# Two nodes on one machine: Open MPI's shared memory takes their ranks for neighbours, and crashes on some machines, with or
# without lowtide. How ranks talk to each other is not what is tested.
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_pml=ob1
srun -N2 --ntasks-per-node=2 --mem=1000 --mpi=pmix "$LOWTIDE" run --out job -- /usr/bin/python3 ranks.py 12 >out 2>err
status=$?
if [ "$status" -eq 0 ]; then
  equals "${names[0]}" "$(cd job && echo ./*/summary.json)" "./rank-0/summary.json ./rank-1/summary.json ./rank-2/summary.json ./rank-3/summary.json"
else
  not_ok "${names[0]}" "srun ended with status $status" "$(tail -n 20 err)" "$(tail -n 5 ./*.log)"
  exit 1
fi
equals "${names[1]}" "$(jq -r '.task | "\(.run) \(.node) \(.rank) \(.ranks) \(.partition)"' job/rank-2/meta.json)" "slurm-1.0 n2 2 4 all"
"$LOWTIDE" budget job --no-swap --json >budget.json 2>err
# 32 x (3 + 4) MiB, and what Python and MPI take twice.
node=$(json budget.json '.nodes[] | select(.node == "n2") | .budgets[] | select(.mechanism == "lowtide") | .bytes')
between "${names[2]}" "$node" $((224 * mib)) $((350 * mib))
"$LOWTIDE" budget job --no-swap >text 2>>err
contains "${names[3]}" "$(<text)" "(n2 sets the number)"
equals "${names[4]}" "$(json budget.json '.runs[0] | [.run, .ranks, (.missing | length), .skew.largest] | join(" ")')" "slurm-1.0 4 0 3"
"$LOWTIDE" budget job/rank-0 job/rank-1 job/rank-2 >/dev/null 2>err
equals "${names[7]}" "$("$LOWTIDE" seff 1 --json 2>/dev/null | jq -r '"\(.ranks) \(.nodes) \(.records | length)"')" "4 2 4"
contains "${names[5]}" "$(<err)" "no records of 1 of its 4 ranks (3)"
{
  echo "#!/bin/sh"
  "$LOWTIDE" budget job --no-swap --emit slurm
  echo "srun --mpi=pmix /usr/bin/python3 $tmp/ranks.py 1"
} >job.sh
check "${names[6]}" sbatch --wait -N2 -n4 -o job.out job.sh
