#!/usr/bin/env python3
"""The same frontend with sdk/python: the proxy learns which calls are one search."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk/python/src"))

import frontend  # noqa: E402
import sluice_rpc  # noqa: E402


def connect(shards):
    return [sluice_rpc.proxied_channel(shard, "127.0.0.1:7400") for shard in shards]


def search(methods, query):
    return sluice_rpc.call_all([(method, query) for method in methods], timeout=10).check().responses


if __name__ == "__main__":
    frontend.measure(connect, search)
