#!/usr/bin/env bash
# Installs what is missing, builds the debug preset and runs every test. Arguments go to ctest: tests/run-tests.sh -R plan
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install-packages.sh build network monitoring browser simulation
tests/interop/install-servers || echo "Tests that need these servers will be skipped."
cmake --preset debug
cmake --build --preset debug
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
code=0
ctest --preset debug --parallel "$(nproc)" --output-junit "$log/junit.xml" "$@" 2>&1 | tee "$log/ctest.txt" || code=$?
# A skipped test is not a passed one: which, and why. Then ctest's closing lines again, so that they end the output.
if python3 tests/skipped_tests.py "$log/junit.xml"; then
  sed -n '/tests passed, /,$p' "$log/ctest.txt"
fi
exit "$code"
