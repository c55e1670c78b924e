#!/usr/bin/env bash
# Installs missing packages, builds the debug preset and runs every test. Arguments go to ctest: tests/run-tests.sh -R
# plan
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install-packages.sh build network monitoring browser simulation
tests/system/interop/install-servers || echo "Tests that need these servers will be skipped."
cmake --preset debug
cmake --build --preset debug
tests/run-ctest debug "$@"
