"""The stock gRPC clients of examples/, and how to start each directly and through sluice-proxy."""

import os
import pathlib

from answer_measurement import python_with_grpc

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_BUILT = _REPOSITORY / "build/clients"
# gRPC's clients read a proxy from these variables. The user's own values must be removed.
_PROXY_VARIABLES = {"grpc_proxy", "http_proxy", "https_proxy", "no_grpc_proxy", "no_proxy", "grpc_proxy_exp"}


def client_command(language, program="aggregator"):
    """Raises ValueError if the program has not been built, and Unsupported if the machine lacks its language. Only Go
    has another program, the worker."""
    python = _REPOSITORY / "examples/python"
    made = python / "answers_pb2_grpc.py" if language == "python" else _BUILT / language / program
    if not made.exists():
        raise ValueError(f"{made} does not exist; make it with: examples/build-clients {language}")
    return [python_with_grpc(), python / "aggregator.py"] if language == "python" else [made]


def plain_environment():
    return {name: value for name, value in os.environ.items() if name.lower() not in _PROXY_VARIABLES}


def proxy_environment(address):
    """Returns the variables of all languages. Each client reads its own."""
    proxy = f"http://{address}"
    java = f"-Dhttps.proxyHost={address.rpartition(':')[0]} -Dhttps.proxyPort={address.rpartition(':')[2]}"
    return {**plain_environment(), "HTTPS_PROXY": proxy, "http_proxy": proxy, "JAVA_TOOL_OPTIONS": java}
