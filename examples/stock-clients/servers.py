"""Starts stock servers on one machine of the test network, and ends them on SIGTERM.

    servers.py KIND --data DIR --workers HOST:PORT,... READY HOST:PORT...

--data has the object, and the certificate and key of all servers; --workers has the servers of all machines. The file
READY appears once all servers of this machine accept connections.
"""

import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

_START_S = 60
_SLOTS = 16384  # of a Redis cluster
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def _nginx(flags, folder):
    """One process with all addresses, like a host with several disks."""
    listens = "".join(f"listen {address} ssl;" for address in flags.listen)
    temporary = "".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(
        f"""daemon off; master_process off; pid {folder}/pid; error_log stderr warn;
        events {{ worker_connections 4096; }}
        http {{
          {temporary} access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 1h;
          server {{ {listens} ssl_certificate {flags.data}/cert.pem; ssl_certificate_key {flags.data}/key.pem; root {flags.data}; }}
        }}"""
    )
    return [["nginx", "-e", "stderr", "-c", config]]


def _redis(flags, folder):
    """A cluster node for each address. Each knows all others from its first second, so that nobody needs to join them."""
    count = len(flags.workers)
    for address in flags.listen:
        nodes = "".join(_redis_node(i, address, worker, count) for i, worker in enumerate(flags.workers))
        (folder / f"{address}.nodes").write_text(f"{nodes}vars currentEpoch {count} lastVoteEpoch 0\n")
    return [
        ["redis-server", "--bind", address.rpartition(":")[0], "--port", address.rpartition(":")[2], "--dir", folder]
        + ["--save", "", "--protected-mode", "no", "--cluster-enabled", "yes", "--cluster-config-file", f"{address}.nodes"]
        + ["--cluster-node-timeout", "600000", "--loglevel", "warning"]
        for address in flags.listen
    ]


def _redis_node(i, own, worker, count):
    port = int(worker.rpartition(":")[2])
    first, last = -(-i * _SLOTS // count), -(-(i + 1) * _SLOTS // count) - 1
    role = "myself,master" if worker == own else "master"
    return f"{i + 1:040x} {worker}@{port + 10000} {role} - 0 0 {i + 1} connected {first}-{last}\n"


def _memcached(flags, _folder):
    return [["memcached", "-u", "root", "-U", "0", "-t", "1", "-l", address] for address in flags.listen]


def _grpc_go(flags, _folder):
    program = _REPOSITORY / "build/clients/go/worker"
    return [[program, "--listen", ",".join(flags.listen), "--cert", flags.data / "cert.pem", "--key", flags.data / "key.pem"]]


def _flight(flags, _folder):
    return [[sys.executable, pathlib.Path(__file__).with_name("flight_server.py"), flags.data, *flags.listen]]


_KINDS = {"nginx": _nginx, "redis": _redis, "memcached": _memcached, "grpc-go": _grpc_go, "flight": _flight}


def _parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=lambda text: text.split(","), required=True)
    parser.add_argument("ready", type=pathlib.Path)
    parser.add_argument("listen", nargs="+")
    return parser.parse_args()


def _wait_until_it_accepts(address):
    host, _, port = address.rpartition(":")
    deadline_s = time.monotonic() + _START_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def _serve(flags, folder):
    children = []
    try:
        for argv in _KINDS[flags.kind](flags, folder):
            children.append(subprocess.Popen([str(word) for word in argv]))
        for address in flags.listen:
            _wait_until_it_accepts(address)
        flags.ready.touch()
        pid, status = os.wait()
        sys.exit(f"process {pid} ended with {os.waitstatus_to_exitcode(status)}")
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def _end(*_):
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory() as temporary:
        _serve(_parse_flags(), pathlib.Path(temporary))
