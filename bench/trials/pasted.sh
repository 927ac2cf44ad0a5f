#!/usr/bin/env bash
# Programs started afresh under the limits that are pasted: `pasted.sh [NAME...]`, of those in pasted.py, two hours for all. What
# is in KEEP already is not measured again.
#
# Environment: KEEP (a folder for what is known), LOWTIDE_WORKLOADS, LOWTIDE.

# shellcheck source=bench/trials/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh, or in the trap
ended=0
trap 'ended=$?; swap_off; (exit "$ended"); finish_test' EXIT
swap_on zram:4G || exit 1
"$LOWTIDE" doctor --calibrate >/dev/null 2>&1
/usr/bin/python3 "$trials/pasted.py" "${KEEP:-$tmp/pasted}" "$@"
