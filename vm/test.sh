#!/usr/bin/env bash
# Runs vm/tests/*.sh, or those named (`vm/test.sh 10-smoke`), in a guest of each kernel. One boot a kernel. Tests named
# *-once.sh run on the first kernel only: what they are about is not the kernel. Those named *-two-nodes* have a boot of
# their own, in a guest with two NUMA nodes of memory.
#
# Environment: KERNELS, TIMEOUT (seconds for all tests of a kernel, with its boot), TEST_TIMEOUT (seconds for one test).
# Output: the tests' lines `ok - `, `not ok - ` and `skip - `, with the kernel before the name. Fails if any is not ok.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

kernels=${KERNELS:-6.12 newest}
timeout=${TIMEOUT:-1600}
test_timeout=${TEST_TIMEOUT:-420}

tests=()
if [ $# -eq 0 ]; then set -- vm/tests/*.sh; fi
for name in "$@"; do
  name=vm/tests/$(basename -- "$name" .sh).sh
  [ -e "$name" ] || { printf 'vm/test.sh: there is no %s\n' "$name" >&2; exit 2; }
  tests+=("/lowtide/$name")
done

log=$(mktemp)
trap 'rm -f -- "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
failed=0

# In the guest the tests have the folders of the repository around them, so that they find the harness of tests/native.
puts=(--put vm/tests:/lowtide/vm/tests --put vm/guest/tests.sh:/vm/tests.sh)
for path in tests workloads/patterns workloads/violent.py; do
  [ ! -e "$path" ] || puts+=(--put "$path:/lowtide/$path")
done

# in_guest KERNEL NODES MEMORY TEST...
in_guest() {
  local kernel=$1 nodes=$2 memory=$3 status=0
  shift 3
  vm/run --kernel "$kernel" --nodes "$nodes" --memory "$memory" --timeout "$timeout" "${puts[@]}" -- \
    bash /vm/tests.sh "$test_timeout" "$@" |
    sed -u -E "s/^((not )?ok|skip) - /&$kernel: /" | tee "$log" || status=$?
  if [ "$status" -ne 0 ]; then
    failed=1
    grep -q '^not ok - ' "$log" || printf 'not ok - vm %s: the guest ended with status %s\n' "$kernel" "$status"
  elif ! grep -qE '^(ok|skip) - ' "$log"; then
    failed=1
    printf 'not ok - vm %s: no test reported anything\n' "$kernel"
  fi
}

for kernel in $kernels; do
  status=0
  vm/run --kernel "$kernel" --prepare || status=$?
  case $status in
    0) ;;
    69) printf 'skip - vm %s: needs Debian mirror\n' "$kernel"; continue ;;
    77) printf 'skip - vm %s: needs root to fill its cache once\n' "$kernel"; continue ;;
    *) printf 'not ok - vm %s: preparing it failed with status %s\n' "$kernel" "$status"; failed=1; continue ;;
  esac
  on_one=() on_two=()
  for test in "${tests[@]}"; do
    [[ $test != *-once.sh || $kernel == "${kernels%% *}" ]] || continue
    if [[ $test == *-two-nodes* ]]; then on_two+=("$test"); else on_one+=("$test"); fi
  done
  [ ${#on_one[@]} -eq 0 ] || in_guest "$kernel" 1 2G "${on_one[@]}"
  [ ${#on_two[@]} -eq 0 ] || in_guest "$kernel" 2 1G "${on_two[@]}"
done
exit "$failed"
