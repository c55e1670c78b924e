"""The snippets of docs/guides/proxy-by-language.md for Python: client.py environment|authority|tls|fan-out WORKER..."""

import pathlib
import sys
import uuid

import grpc

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


def connect(way, worker):
    if way == "environment":
        return grpc.insecure_channel(worker)
    return by_tls() if way == "tls" else by_authority(worker)


def main(way, workers):
    channels = [connect(way, worker) for worker in workers]
    calls = []
    for channel, worker in zip(channels, workers):
        metadata = worker_metadata(worker) if way == "tls" else fan_out_metadata(workers) if way == "fan-out" else []
        calls.append(channel.unary_unary(HEALTH).future(b"", timeout=30, metadata=metadata))
    for call in calls:
        if call.result() != b"\x08\x01":  # SERVING
            sys.exit(f"the worker says {call.result()!r}")
    print(f"{len(calls)} served")


main(sys.argv[1], sys.argv[2:])
