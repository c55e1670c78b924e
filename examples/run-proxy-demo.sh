#!/usr/bin/env bash
# Shows the effect of TCP incast on unchanged gRPC clients in Go, Python and Java, and of sluice-proxy on incast. One
# command, a few minutes, and no root once the packages are installed. A language that this machine lacks is skipped.
# Arguments go to the demo: examples/run-proxy-demo.sh --workers 128
set -euo pipefail
cd "$(dirname "$0")/.."

for argument in "$@"; do
  case $argument in -h | --help) exec examples/demo/proxy --help ;; esac  # without a build
done
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
