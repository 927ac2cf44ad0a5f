#!/usr/bin/env bash
# Runs vm/tests/*.sh, or those named (`vm/test.sh 10-smoke`), on each kernel: every test in a guest of its own, as many guests at
# a time as there are CPUs, the longest first. Tests named *-once.sh run on the first kernel only, as they do not
# depend on the kernel. A line `# guest: OPTIONS` in a test has vm/run's options for its guest; without, it is one CPU in virtual time.
#
# Environment: KERNELS, JOBS (guests at a time), TIMEOUT (seconds of the host for a guest), TEST_TIMEOUT (seconds of the guest for a
# test); KILLS, FIRST, KIND and DEATHS (of the tests that kill lowtide).
# Output: what each test printed once it has ended, its lines `ok - `, `not ok - ` and `skip - ` with the kernel before the
# name. Fails if any is not ok.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

kernels=${KERNELS:-6.12 newest 6.1}
jobs=${JOBS:-$(nproc)}
timeout=${TIMEOUT:-1200}
test_timeout=${TEST_TIMEOUT:-600}
took=${LOWTIDE_VM_CACHE:-$HOME/.cache/lowtide-vm}/took # lines of seconds, test and kernel, the newest last

tests=()
if [ $# -eq 0 ]; then set -- vm/tests/*.sh; fi
for name in "$@"; do
  name=$(basename -- "$name" .sh)
  [ -e "vm/tests/$name.sh" ] || { printf 'vm/test.sh: there is no vm/tests/%s.sh\n' "$name" >&2; exit 2; }
  tests+=("$name")
done

work=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-vm-tests.XXXXXX")
# shellcheck disable=SC2317,SC2329 # reached through the traps
finish() {
  local pids
  trap '' INT TERM HUP
  mapfile -t pids < <(jobs -p)
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -rf -- "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# In the guest the tests have the folders of the repository around them, so that they find the harness of tests/native.
puts=(--put vm/tests:/lowtide/vm/tests)
for path in tests/native/lib.sh workloads/patterns workloads/violent.py packaging/systemd; do puts+=(--put "$path:/lowtide/$path"); done

# Runs one test and prints its result in one piece.
one() { # KERNEL TEST
  local kernel=$1 test=$2 log=$work/$1-$2 options status=0 begun=$SECONDS reason
  read -ra options < <(sed -n 's/^# guest: //p' "vm/tests/$test.sh") || true
  # The guest ends with this shell, however that ends.
  setpriv --pdeathsig TERM vm/run --kernel "$kernel" --clock virtual --timeout "$timeout" "${puts[@]}" "${options[@]}" -- \
    env LOWTIDE=/usr/local/bin/lowtide PATTERN=/usr/local/bin/pattern KILLS="${KILLS:-}" FIRST="${FIRST:-}" KIND="${KIND:-}" DEATHS="${DEATHS:-}" \
    timeout --kill-after=10 "$test_timeout" bash "/lowtide/vm/tests/$test.sh" >"$log" 2>&1 </dev/null || status=$?
  case $status in
    0) reason='reported nothing' ;;
    124 | 137) reason="took longer than $test_timeout s" ;;
    *) reason="status $status" ;;
  esac
  # A test that fails says so itself; one that ended for another reason does not.
  if ! grep -qE '^(not ok|ok|skip) - ' "$log" || { [ "$status" -ne 0 ] && ! grep -q '^not ok - ' "$log"; }; then
    printf 'not ok - %s: %s\n' "$test" "$reason" >>"$log"
  fi
  ! grep -q '^not ok - ' "$log" || : >"$work/failed"
  {
    flock "$output"
    printf '# %s on %s took %s s\n' "$test" "$kernel" "$((SECONDS - begun))"
    sed -E "s/^((not )?ok|skip) - /&$kernel: /" "$log"
    echo "$((SECONDS - begun)) $test $kernel" >>"$took"
  } {output}>"$work/lock"
}

queue=() # lines of seconds, kernel and test
for kernel in $kernels; do
  status=0
  vm/run --kernel "$kernel" --prepare || status=$?
  case $status in
    0) ;;
    69) printf 'skip - vm %s: needs Debian mirror\n' "$kernel"; continue ;;
    77) printf 'skip - vm %s: needs root to fill its cache once\n' "$kernel"; continue ;;
    *) printf 'not ok - vm %s: preparing it failed with status %s\n' "$kernel" "$status"; : >"$work/failed"; continue ;;
  esac
  for test in "${tests[@]}"; do
    [[ $test != *-once || $kernel == "${kernels%% *}" ]] || continue
    # A test that never ran comes before those that did.
    seconds=$(awk -v t="$test" -v k="$kernel" '$2 == t && $3 == k { s = $1 } END { print s == "" ? 9999 : s }' "$took" 2>/dev/null || echo 9999)
    queue+=("$seconds $kernel $test")
  done
done
while read -r _ kernel test; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  one "$kernel" "$test" &
done < <([ ${#queue[@]} -eq 0 ] || printf '%s\n' "${queue[@]}" | sort -rn)
wait
[ ! -e "$work/failed" ]
