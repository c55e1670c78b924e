#!/usr/bin/env python3
"""Reads a range of a striped file from several sluice-workers at once, again and again. It is written with grpcio alone.
Each range must have the same bytes each time. Prints a report in JSON."""

import argparse
import concurrent.futures
import json
import math
import sys
import time

import grpc

import sru_service_pb2
import sru_service_pb2_grpc


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workers", required=True, metavar="HOST:PORT,...", help="in the order of their stripes")
    add("--via", metavar="ADDRESS", help="connect to this address instead, and name the worker in :authority")
    add("--file", required=True)
    add("--length", type=int, default=10240, metavar="BYTES", help="of the range that begins each stripe (10240)")
    add("--blocks", type=int, default=200, metavar="K", help="reads of all workers (200)")
    add("--seconds", type=float, metavar="S", help="read for this time, instead of --blocks")
    add("--timeout", type=float, default=10, metavar="S", help="for each block (10)")
    return parser.parse_args()


class Reader:
    """Reads one block after another."""

    def __init__(self, flags):
        self._flags = flags
        workers = flags.workers.split(",")
        channels = [grpc.insecure_channel(flags.via or worker, [("grpc.default_authority", worker)]) for worker in workers]
        self._stubs = [sru_service_pb2_grpc.SruServiceStub(channel) for channel in channels]
        self._pool = concurrent.futures.ThreadPoolExecutor(len(workers))

    def block(self):
        return list(self._pool.map(self._range, range(len(self._stubs))))

    def _range(self, worker):
        request = sru_service_pb2.ReadSruRequest(file=self._flags.file, worker=worker, length=self._flags.length)
        return b"".join(response.data for response in self._stubs[worker].ReadSru(request, timeout=self._flags.timeout))


def measure(reader, flags):
    wanted = reader.block()  # a service that cannot reach its workers fails here
    block_ms, errors, error_sample, wrong = [], 0, "", 0
    started = time.monotonic()
    while time.monotonic() - started < flags.seconds if flags.seconds else len(block_ms) + errors < flags.blocks:
        block_started = time.monotonic()
        try:
            wrong += reader.block() != wanted
        except grpc.RpcError as error:
            errors += 1
            error_sample = f"{error.code().name}: {error.details()}"
            continue
        block_ms.append(1e3 * (time.monotonic() - block_started))
    block_ms.sort()
    return {
        "blocks": len(block_ms),
        "errors": errors,  # blocks that did not complete
        "error_sample": error_sample,
        "wrong": wrong,  # blocks with other bytes than the first
        "bytes": sum(map(len, wanted)),
        "block_p50_ms": percentile(block_ms, 0.5),
        "block_p99_ms": percentile(block_ms, 0.99),
        "block_max_ms": percentile(block_ms, 1),
    }


def percentile(ordered, share):
    """Returns the smallest value that is not below a share of all values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0


if __name__ == "__main__":
    options = parse_flags()
    try:
        print(json.dumps(measure(Reader(options), options)))
    except grpc.RpcError as error:
        sys.exit(f"read_srus: {error.code().name}: {error.details()}")
