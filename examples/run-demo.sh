#!/usr/bin/env bash
# Shows the effect of TCP incast on a striped read, and of Sluice on incast. One command, about three minutes with the
# build, and no root once the packages are installed. Arguments go to the demo: examples/run-demo.sh --cc reno
set -euo pipefail
cd "$(dirname "$0")/.."

for argument in "$@"; do
  case $argument in -h | --help) exec examples/demo/run --help ;; esac  # without a build
done
tests/install-packages.sh build network
cmake --preset release >/dev/null
cmake --build --preset release --target \
  sluice-worker sluice-aggregator sluice-stripe sluice-cat sluice-load sluice-plan sluice-diagnose
code=0
examples/demo/run --build build/release "$@" || code=$?
echo "The programs are in build/release/bin. To call them by name: export PATH=\"$PWD/build/release/bin:\$PATH\""
exit $code
