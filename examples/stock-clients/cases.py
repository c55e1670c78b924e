"""The stock clients and servers: how to start them, and what they need."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

from sandbox import Unsupported

_FOLDER = pathlib.Path(__file__).parent
_REPOSITORY = _FOLDER.parents[1]
_GO_CLIENT = _REPOSITORY / "build/clients/go/aggregator"
_VENV_PYTHON = _REPOSITORY / "build/stock-clients/bin/python"
_DEBIAN_PYTHON = "/usr/bin/python3"  # for Debian's modules; a different Python may come first on the path


@dataclasses.dataclass(frozen=True)
class Case:
    client: str  # its name in the table
    servers: str  # kind of servers.py
    load: Callable  # (data, response_bytes) -> command line
    response_bytes: int
    python: str = sys.executable  # of load and servers
    modules: str = "json"  # Python modules that it needs
    programs: tuple = ()
    speaks_proxies: bool = True  # otherwise proxychains4 leads it to the proxy


def _python_load(name, python=sys.executable):
    return lambda data, _: [python, _FOLDER / f"{name}_load.py", "--data", data]


def _go_load(data, response_bytes):
    return [_GO_CLIENT, "--ca", data / "cert.pem", "--response-bytes", response_bytes]


# Each process of curl makes new connections. With larger parts their handshakes are less of the whole.
CASES = {
    "nginx": Case("curl --parallel, nginx", "nginx", _python_load("curl"), 65536, programs=("nginx", "curl")),
    "redis": Case(
        "redis-py cluster, redis", "redis", _python_load("redis", _DEBIAN_PYTHON), 10240, _DEBIAN_PYTHON,
        "redis.cluster", ("redis-server", "proxychains4"), speaks_proxies=False,
    ),
    "grpc-go": Case("grpc-go with TLS", "grpc-go", _go_load, 10240, programs=(str(_GO_CLIENT),)),
    "memcached": Case(
        "libmemcached, memcached", "memcached", _python_load("memcached", _DEBIAN_PYTHON), 10240, _DEBIAN_PYTHON,
        "pylibmc", ("memcached", "proxychains4"), speaks_proxies=False,
    ),
    "java": Case("JDK HttpClient, nginx", "nginx", _python_load("java"), 10240, programs=("nginx", "java")),
    "flight": Case(
        "pyarrow Flight with TLS", "flight", _python_load("flight", str(_VENV_PYTHON)), 65536, str(_VENV_PYTHON),
        "pyarrow.flight",
    ),
}  # fmt: skip


def check_needs(name):
    """Raises Unsupported if the machine lacks something that the case needs."""
    case = CASES[name]
    missing = [program for program in case.programs if not shutil.which(program)]
    if not shutil.which(case.python) or subprocess.run([case.python, "-c", f"import {case.modules}"], check=False).returncode:
        missing.append(f"Python with {case.modules}")
    if missing:
        raise Unsupported(f"{name} needs {', '.join(missing)}; install it with: examples/stock-clients/install {name}")
