#!/usr/bin/env bash
# Shows the effect of TCP incast on a striped read, and of Sluice on incast. One command, and no root once the packages are
# installed. Takes programs of this version from /usr/bin if the package `sluice` is installed (a minute); otherwise it
# builds them (about three minutes). Arguments go to the demo: examples/run-demo.sh --cc reno
set -euo pipefail
cd "$(dirname "$0")/.."

for argument in "$@"; do
  case $argument in -h | --help) exec examples/demo/run --help ;; esac  # without a build
done
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [[ $(/usr/bin/sluice-aggregator --version 2>/dev/null) == "sluice-aggregator $version"* ]]; then
  tests/install-packages.sh network
  build=/usr
  programs="the installed ones, in /usr/bin"
else
  tests/install-packages.sh build network
  cmake --preset release >/dev/null
  cmake --build --preset release --target \
    sluice-worker sluice-aggregator sluice-stripe sluice-cat sluice-load sluice-plan sluice-diagnose
  build=build/release
  programs="in build/release/bin. To call them by name: export PATH=\"$PWD/build/release/bin:\$PATH\""
fi
code=0
examples/demo/run --build "$build" "$@" || code=$?
echo "The programs are $programs"
exit $code
