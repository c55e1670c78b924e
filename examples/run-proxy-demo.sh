#!/usr/bin/env bash
# Shows what TCP incast does to unchanged gRPC clients in Go, Python and Java, and what sluice-proxy beside them does to
# incast: one command, a few minutes, no root once the packages are there. A language that this machine lacks is left out.
# Arguments go to the demo: examples/run-proxy-demo.sh --workers 128
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install-packages.sh build network
cmake --preset release >/dev/null
cmake --build --preset release --target sluice-proxy answer_server fan_out_load
clients=()
for language in go java python; do
  if examples/build-clients "$language"; then
    clients+=("$language")
  else
    echo "The demo goes on without it."
  fi
done
exec examples/demo/proxy --build build/release --client "$(IFS=,; echo "${clients[*]}")" "$@"
