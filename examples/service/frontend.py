#!/usr/bin/env python3
"""The frontend of an ordinary gRPC service: asks all shards at once, 30 times, and prints how long that takes. SHARDS in the
environment has their addresses."""

import os
import time

import grpc

SEARCHES = 30
METHOD = "/shop.Shards/Search"


def connect(shards):
    return [grpc.insecure_channel(shard) for shard in shards]


def search(methods, query):
    calls = [method.future(query, timeout=10) for method in methods]
    return [call.result() for call in calls]


def measure(connect, search):
    methods = [channel.unary_unary(METHOD) for channel in connect(os.environ["SHARDS"].split())]
    search(methods, b"warm up")
    took, found = [], 0
    for _ in range(SEARCHES):
        began = time.monotonic()
        found += sum(map(len, search(methods, b"query")))
        took.append(1000 * (time.monotonic() - began))
    rate = 8e-3 * found / sum(took)
    took.sort()
    print(f"{SEARCHES} searches of {len(methods)} shards: {rate:.1f} Mbit/s, p50 {took[SEARCHES // 2]:.0f} ms, slowest {took[-1]:.0f} ms")


if __name__ == "__main__":
    measure(connect, search)
