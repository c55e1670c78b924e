"""The snippets of docs/guides/proxy-by-language.md for Python: client.py environment|authority|fan-out WORKER..."""

import sys
import uuid

import grpc

HEALTH = "/grpc.health.v1.Health/Check"  # called by its path, so that no generated code is needed


def by_authority(worker):
    # [snippet]
    return grpc.insecure_channel("unix:/run/sluice/proxy.sock", options=[("grpc.default_authority", worker)])
    # [snippet]


def fan_out_metadata(workers):
    # [snippet]
    return [("sluice-block", uuid.uuid4().hex), ("sluice-weight", str(len(workers)))]
    # [snippet]


def main(way, workers):
    metadata = fan_out_metadata(workers) if way == "fan-out" else []
    channels = [grpc.insecure_channel(worker) if way == "environment" else by_authority(worker) for worker in workers]
    calls = [channel.unary_unary(HEALTH).future(b"", timeout=30, metadata=metadata) for channel in channels]
    for call in calls:
        if call.result() != b"\x08\x01":  # SERVING
            sys.exit(f"the worker says {call.result()!r}")
    print(f"{len(calls)} served")


main(sys.argv[1], sys.argv[2:])
