#!/bin/sh
# Installs the Debian packages that Sluice needs and this machine lacks; does nothing where it has them all.
#   tests/install-packages.sh [build] [network] [monitoring] [browser] [search] [simulation] [checks]     default: build network
set -eu

# To configure and build everything, tests and benchmarks included.
build="cmake ninja-build g++ ccache pkg-config libgrpc++-dev libssl-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libabsl-dev libboost-dev libcli11-dev libspdlog-dev prometheus-cpp-dev libisal-dev libmnl-dev libgtest-dev libgmock-dev
  libnghttp2-dev libssl-dev zlib1g-dev libbenchmark-dev libxapian-dev libxml2-dev python3"
# For the test network, its servers in Python and its plots.
network="iproute2 ethtool nftables procps util-linux iputils-ping gnuplot-nox python3-grpcio socat"
# For the tests of metrics, rules and manifests. promtool checks our metrics and rules, and the server reads them. Its package
# brings a server, which must not start on somebody's machine.
monitoring="python3-yaml python3-jsonschema"
if [ ! -d /run/systemd/system ]; then
  monitoring="$monitoring prometheus"
fi
# For the tests of the status page, which are skipped without it: 350 MB on disk.
browser="chromium"
# The documents that examples/search searches: 25 MB, 2760 pages.
search="python3.11-doc postgresql-doc-15 git-doc sqlite3-doc"
# For the simulations in packets, whose tests are skipped without them: ns-3 (research/ns3; 57 MB), ns-2
# (research/ns2), and their pictures.
simulation="libns3-dev ns2 python3-matplotlib python3-scipy"
# For .ci/run. The manifests are rendered by a kubectl or kustomize newer than those of Debian 12; where there is none, their tests are
# skipped.
checks="clang-14 lld-14 libclang-rt-14-dev clang-tidy-14 clang-format-14 git"

[ $# -gt 0 ] || set -- build network
wanted=""
for group in "$@"; do
  case $group in
    build) wanted="$wanted $build" ;;
    network) wanted="$wanted $network" ;;
    monitoring) wanted="$wanted $monitoring" ;;
    browser) wanted="$wanted $browser" ;;
    search) wanted="$wanted $search" ;;
    simulation) wanted="$wanted $simulation" ;;
    checks) wanted="$wanted $checks" ;;
    *) echo "$0: unknown group '$group'; there are build, network, monitoring, browser, search, simulation and checks" >&2; exit 2 ;;
  esac
done

missing=""
for package in $wanted; do
  # Where a package has another name or was built by hand, apt decides; this only spares a run of apt.
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -z "$missing" ]; then
  exit 0
fi

echo "Installing:$missing"
sudo=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, and installing them needs root:$missing" >&2
    exit 1
  fi
  sudo="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent (containers) or old; try without a network first.
# shellcheck disable=SC2086
if ! $sudo apt-get install -y --no-install-recommends $missing &&
   ! { $sudo apt-get update && $sudo apt-get install -y --no-install-recommends $missing; }; then
  echo "Could not install:$missing" >&2
  echo "Without a network, install them from a Debian 12 mirror or medium and start again." >&2
  exit 1
fi
