"""The snippets of docs/guides/proxy-by-language.md for Python: client.py environment|authority|tls|fan-out|package WORKER..."""

import pathlib
import sys
import uuid

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[5] / "sdk/python/src"))
import sluice_rpc  # noqa: E402

HEALTH = "/grpc.health.v1.Health/Check"  # called by its path, so that no generated code is needed


def by_authority(worker):
    # [snippet]
    return grpc.insecure_channel("unix:/run/sluice/proxy.sock", options=[("grpc.default_authority", worker)])
    # [snippet]


def by_tls():
    # [snippet]
    authority, key, certificate = (pathlib.Path(name).read_bytes() for name in ("ca.pem", "client.key", "client.pem"))
    return grpc.secure_channel("127.0.0.1:7443", grpc.ssl_channel_credentials(authority, key, certificate))
    # [snippet]


def worker_metadata(worker):
    # [snippet]
    return [("x-worker", worker)]
    # [snippet]


def fan_out_metadata(workers):
    # [snippet]
    return [("sluice-block", uuid.uuid4().hex), ("sluice-weight", str(len(workers)))]
    # [snippet]


def by_package(workers):
    # [snippet]
    channels = [sluice_rpc.proxied_channel(worker) for worker in workers]
    # [snippet]
    methods, request = [channel.unary_unary(HEALTH) for channel in channels], b""
    # [snippet]
    result = sluice_rpc.call_all([(method, request) for method in methods], timeout=30, quorum=len(methods)).check()
    # [snippet]
    return result.responses


def connect(way, worker):
    if way == "environment":
        return grpc.insecure_channel(worker)
    return by_tls() if way == "tls" else by_authority(worker)


def responses(way, workers):
    if way == "package":
        return by_package(workers)
    channels = [connect(way, worker) for worker in workers]
    calls = []
    for channel, worker in zip(channels, workers):
        metadata = worker_metadata(worker) if way == "tls" else fan_out_metadata(workers) if way == "fan-out" else []
        calls.append(channel.unary_unary(HEALTH).future(b"", timeout=30, metadata=metadata))
    return [call.result() for call in calls]


def main(way, workers):
    served = responses(way, workers)
    for response in served:
        if response != b"\x08\x01":  # SERVING
            sys.exit(f"the worker says {response!r}")
    print(f"{len(served)} served")


main(sys.argv[1], sys.argv[2:])
