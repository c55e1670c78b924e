#!/usr/bin/env bash
# Installs missing packages, builds the debug preset and runs every test. Arguments go to ctest: tests/run-tests.sh -R
# plan
set -euo pipefail
cd "$(dirname "$0")/.."

# The build needs only the first packages. The others are for the tests, and are installed while the build runs.
tests/install-packages.sh build simulation
install_for_tests() {
  tests/install-packages.sh network monitoring browser stock
  tests/install-languages || echo "Tests that need this will be skipped."
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_for_tests >"$log" 2>&1 &
installs=$!
code=0
cmake --preset debug && cmake --build --preset debug || code=$?
echo "Packages, languages and servers for the tests:"
wait "$installs" || code=$?
cat "$log"
[ "$code" = 0 ] || exit "$code"
tests/run-ctest debug "$@"
