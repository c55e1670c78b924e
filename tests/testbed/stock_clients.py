"""The stock gRPC clients of examples/: how each is started, directly and through sluice-proxy."""

import os
import pathlib

from answer_measurement import python_with_grpc

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_BUILT = _REPOSITORY / "build/clients"
# What gRPC's clients take a proxy from. Those of the user's own network must not be in it.
_PROXY_VARIABLES = {"grpc_proxy", "http_proxy", "https_proxy", "no_grpc_proxy", "no_proxy", "grpc_proxy_exp"}


def client_command(language):
    """ValueError where it has not been built, Unsupported where the machine lacks its language."""
    python = _REPOSITORY / "examples/python"
    made = python / "answers_pb2_grpc.py" if language == "python" else _BUILT / language / "aggregator"
    if not made.exists():
        raise ValueError(f"{made} does not exist; make it with: examples/build-clients {language}")
    return [python_with_grpc(), python / "aggregator.py"] if language == "python" else [made]


def plain_environment():
    return {name: value for name, value in os.environ.items() if name.lower() not in _PROXY_VARIABLES}


def proxy_environment(address):
    """Each client takes its own variable out of these."""
    proxy = f"http://{address}"
    java = f"-Dhttps.proxyHost={address.rpartition(':')[0]} -Dhttps.proxyPort={address.rpartition(':')[2]}"
    return {**plain_environment(), "HTTPS_PROXY": proxy, "http_proxy": proxy, "JAVA_OPTS": java}
