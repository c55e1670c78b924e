#!/usr/bin/env python3
"""One large response comes whole through each kind of tunnel, and over a LinkStream: large_response_test.py BUILD. A
response of more than 4 GiB takes long, so the tests of a build move less. By hand, on a release build:

    tests/system/proxy/large_response_test.py build/release --mib 6144

The buffer is large for its rate, so that a busy machine does not seem to end the response in the middle of it.
"""

import argparse
import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile

from programs import started

_WAYS = ("connect", "socks5", "route", "library")


def _free_addresses(count):
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return ["{}:{}".format(*one.getsockname()) for one in made]


def _read(flags, way, folder):
    """Returns the seconds that the response took."""
    server, listen, route = _free_addresses(3)
    ready = folder / "proxy"
    proxy = [flags.build / "bin/sluice-proxy", "--listen", listen, "--route", f"tcp:{route}={server}", "--workers",
             "127.0.0.0/8", "--capacity", "100mbit", "--buffer", "4mb", "--log-level", "warning", "--ready-file", ready]  # fmt: skip
    with started(proxy, ready):
        argv = [flags.build / "tests/large_response", "direct" if way == "route" else way, server,
                route if way == "route" else listen, str(flags.mib << 20)]  # fmt: skip
        run = subprocess.run(argv, timeout=flags.timeout, check=True, stdout=subprocess.PIPE, text=True)
    return float(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--mib", type=int, default=64, help="MiB of the response (64)")
    parser.add_argument("--way", choices=_WAYS, action="append", help="only this way; may be repeated (all)")
    parser.add_argument("--timeout", type=float, default=240, metavar="SECONDS", help="of each response (240)")
    flags = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for way in flags.way or _WAYS:
            try:
                seconds = _read(flags, way, pathlib.Path(folder))
                print(f"{way}: {flags.mib} MiB in {seconds:.1f} s, {flags.mib * 2**20 * 8 / seconds / 1e9:.2f} Gbit/s")
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                failed = True
                print(f"{way}: {error}")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
