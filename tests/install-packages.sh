#!/bin/sh
# Installs the packages of Debian 12 or 13, or of Ubuntu 24.04 (the groups build and demo were tried there), that Sluice
# needs and this machine lacks. Does nothing if all are installed.
#   tests/install-packages.sh [build] [demo] [network] [monitoring] [browser] [languages] [search] [simulation] [checks] [stock] [package]
# Without arguments: build network.
set -eu

# Packages to configure and build everything, including tests, benchmarks and the image, which contains nft.
build="cmake ninja-build g++ ccache pkg-config libgrpc++-dev libssl-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libabsl-dev libboost-dev libcli11-dev libspdlog-dev prometheus-cpp-dev libisal-dev libmnl-dev libgtest-dev libgmock-dev
  libnghttp2-dev libssl-dev zlib1g-dev libbenchmark-dev libxapian-dev libxml2-dev python3 nftables"
# Packages for examples/run-demo.sh, in addition to the programs.
demo="iproute2 ethtool procps util-linux python3"
# Packages for the test network, its Python servers and its plots.
network="iproute2 ethtool nftables procps util-linux iputils-ping gnuplot-nox python3-grpcio socat curl"
# Packages for the tests of metrics, rules and manifests. promtool checks the metrics and rules, and a Prometheus server
# reads them. The prometheus package would also start its server, so it is not installed on a machine that runs systemd.
monitoring="python3-yaml python3-jsonschema"
if [ ! -d /run/systemd/system ]; then
  monitoring="$monitoring prometheus"
fi
# Chromium for the tests of the status page, which are skipped without it: 350 MB on disk.
browser="chromium"
# The languages of the clients and servers of tests: 1.4 GB on disk. Those that this machine has from elsewhere, such as
# rustup, are kept. Rust's package is the one that Debian keeps new for browsers. tests/install-languages calls this, and
# installs what is not a package.
languages=""
for need in go:golang-go mvn:maven javac:default-jdk-headless node:nodejs npm:npm cargo:cargo-web rustc:rustc-web; do
  command -v "${need%%:*}" >/dev/null || languages="$languages ${need#*:}"
done
# Documents for examples/search: 25 MB, 2760 pages of Debian 12.
search="python3-doc postgresql-doc git-doc sqlite3-doc"
# Packages for the packet simulations, whose tests are skipped without them: ns-3 (research/ns3; 57 MB), ns-2
# (research/ns2), and their plots.
simulation="libns3-dev ns2 python3-matplotlib python3-scipy"
# Servers and clients of examples/stock-clients: 15 MB on disk. Debian starts the servers of these packages, so they are
# not installed on a machine that runs systemd.
stock=""
if [ ! -d /run/systemd/system ]; then
  stock="nginx-light curl redis-server memcached proxychains4 python3-redis python3-hiredis python3-pylibmc"
fi
# Packages to make Debian packages and to check them (deploy/packages/check), and the site (docs/site/build).
package="help2man lintian debootstrap doxygen"
# Packages for .ci/run, which needs Debian 12: 13 has no clang-14.
checks="clang-14 lld-14 libclang-rt-14-dev clang-tidy-14 clang-format-14 universal-ctags git"

[ $# -gt 0 ] || set -- build network
wanted=""
for group in "$@"; do
  case $group in
    build) wanted="$wanted $build" ;;
    demo) wanted="$wanted $demo" ;;
    network) wanted="$wanted $network" ;;
    monitoring) wanted="$wanted $monitoring" ;;
    browser) wanted="$wanted $browser" ;;
    languages) wanted="$wanted $languages" ;;
    search) wanted="$wanted $search" ;;
    simulation) wanted="$wanted $simulation" ;;
    checks) wanted="$wanted $checks" ;;
    package) wanted="$wanted $package" ;;
    stock) wanted="$wanted $stock" ;;
    *) echo "$0: unknown group '$group'; there are build, demo, network, monitoring, browser, languages, search, simulation, checks, stock and package" >&2; exit 2 ;;
  esac
done

missing=""
for package in $wanted; do
  # Only avoids a run of apt. For a package with a different name or built by hand, apt decides.
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
# The package lists may be missing (in containers) or old. Try first without a network.
# shellcheck disable=SC2086
if ! $sudo apt-get install -y --no-install-recommends $missing &&
   ! { $sudo apt-get update && $sudo apt-get install -y --no-install-recommends $missing; }; then
  echo "Could not install:$missing" >&2
  echo "Without a network, install them from a mirror or medium of Debian and start again." >&2
  exit 1
fi
