#!/usr/bin/env bash
# Shows what TCP incast does to a striped read, and what Sluice does to incast: one command, a few minutes, no root once
# the packages are there. Arguments go to the demo: examples/run-demo.sh --cc reno
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install-packages.sh build network
cmake --preset release >/dev/null
cmake --build --preset release --target \
  sluice-worker sluice-aggregator sluice-stripe sluice-cat sluice-load sluice-plan
exec examples/demo/run --build build/release "$@"
