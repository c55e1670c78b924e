#!/usr/bin/env bash
# Shows the effect of TCP incast on a striped read, and of Sluice on incast. One command, a few minutes, and no root
# once the packages are installed. Arguments go to the demo: examples/run-demo.sh --cc reno
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install-packages.sh build network
cmake --preset release >/dev/null
cmake --build --preset release --target \
  sluice-worker sluice-aggregator sluice-stripe sluice-cat sluice-load sluice-plan
exec examples/demo/run --build build/release "$@"
