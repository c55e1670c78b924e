#!/usr/bin/env bash
# Shows the effect of TCP incast on a striped read, and of Sluice on incast. One command, and no root once the packages are
# installed. Takes the programs of the package `sluice` if it is installed in this version (half a minute); otherwise it builds
# them (about three minutes). SLUICE_PREFIX=/usr/local takes programs that `cmake --install` put there.
# Arguments go to the demo: examples/run-demo.sh --cc reno
set -euo pipefail
cd "$(dirname "$0")/.."

for argument in "$@"; do
  case $argument in -h | --help) exec examples/demo/run --help ;; esac  # without a build
done
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
prefix=${SLUICE_PREFIX:-/usr}
installed=$("$prefix/bin/sluice-aggregator" --version 2>/dev/null | cut -d ' ' -f 2) || installed=none
if [[ $installed == "$version" ]]; then
  tests/install-packages.sh demo
  build=$prefix
  programs="the installed ones, in $prefix/bin"
else
  echo "Building the programs: $prefix/bin/sluice-aggregator has the version $installed, this clone $version."
  tests/install-packages.sh build demo
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
