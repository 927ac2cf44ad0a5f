#!/usr/bin/env bash
# The Python package against the command, and Spark's executors (processes of their own, one of which is killed) against both.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1

package="the Python package"
if ! python3 -m venv venv >pip.log 2>&1 || ! venv/bin/pip -q install 'maturin>=1.7,<2' pyarrow pytest matplotlib 'moto[s3,server]' >>pip.log 2>&1; then
  skip "$package" "maturin and pyarrow from a package index"
  exit 0
fi
only=()
if ! command -v java >/dev/null; then
  skip "Spark" java
  only=(-k "not spark and not executor")
elif ! venv/bin/pip -q install 'pyspark>=4' 'pandas>=2.2,<3' >>pip.log 2>&1; then
  skip "Spark" "pyspark from a package index"
  only=(-k "not spark and not executor")
fi
# Built as the tests were, so that nothing is built twice.
check "$package is built" env VIRTUAL_ENV="$tmp/venv" venv/bin/maturin build -q --profile dev -m "$repository/python/Cargo.toml" -o "$tmp/wheels"
check "it is one wheel for all versions of Python" compgen -G "$tmp/wheels/lowtide-*-abi3-*.whl"
check "and can be installed" venv/bin/pip -q install --no-deps "$tmp"/wheels/lowtide-*.whl

"$LOWTIDE" fleet generate fleet --hosts 12 --workloads 4 --duration 4h >/dev/null
"$LOWTIDE" run --max-overhead 50% --out record -- "$PATTERN" "$patterns/fixed.toml" --seconds 10 >/dev/null 2>&1
check "its figures are those of the command, and Spark's too" env LOWTIDE="$LOWTIDE" FLEET="$tmp/fleet" RECORD="$tmp/record" \
  venv/bin/python -m pytest -q -p no:cacheprovider "${only[@]}" "$repository/python/tests"
