#!/usr/bin/env python3
"""An aggregator written with grpcio, without Sluice. It calls all workers at once, waits for all responses, and
starts again. Prints the times in JSON."""

import argparse
import asyncio
import json
import math
import os
import sys
import time

import grpc

import answers_pb2
from fan_out import FanOut


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workers", required=True, metavar="HOST:PORT,...")
    add("--via", metavar="ADDRESS", help="connect to this address instead, and name the worker in :authority")
    add("--response-bytes", type=int, default=10240, metavar="BYTES", help="size of a response (10240)")
    add("--think-ms", type=float, default=0, metavar="MS", help="workers wait this long before they respond")
    add("--tail-ms", type=float, default=0, metavar="MS", help="a share of the responses takes this long instead of --think-ms")
    add("--tail-share", type=float, default=0, metavar="SHARE", help="share of the responses with --tail-ms, 0 to 1")
    add("--blocks", type=int, default=20, metavar="K", help="fan-outs of each reader (20)")
    add("--warmup-blocks", type=int, default=2, metavar="K", help="fan-outs that do not count (2)")
    add("--readers", type=int, default=1, metavar="R", help="concurrent readers; each requests one block after another (1)")
    add("--timeout", type=float, default=600, metavar="SECONDS", help="for each fan-out (600)")
    add("--start-file", metavar="FILE", help='after the warm-up write "warm" to stderr, and wait for this file')
    return parser.parse_args()


async def run(flags):
    request = answers_pb2.AnswerRequest(
        response_bytes=flags.response_bytes,
        think_us=round(1000 * flags.think_ms),
        tail_think_us=round(1000 * flags.tail_ms),
        tail_share=flags.tail_share,
    )
    async with FanOut(flags.workers.split(","), flags.via) as fan_out:
        for _ in range(flags.warmup_blocks):
            await fan_out.ask(request, flags.timeout)
        await start(flags.start_file)
        return await measure(fan_out, request, flags)


async def start(file):
    if not file:
        return
    print("warm", file=sys.stderr, flush=True)
    while not os.path.exists(file):
        await asyncio.sleep(0.002)


async def measure(fan_out, request, flags):
    block_ms, received, errors, error_sample = [], 0, 0, ""

    async def read():
        nonlocal received, errors, error_sample
        for _ in range(flags.blocks):
            block_started = time.monotonic()
            try:
                responses = await fan_out.ask(request, flags.timeout)
            except grpc.aio.AioRpcError as error:
                errors += 1
                error_sample = f"{error.code().name}: {error.details()}"
                continue
            received += sum(len(response.payload) for response in responses)
            block_ms.append(1e3 * (time.monotonic() - block_started))

    started = time.monotonic()
    await asyncio.gather(*(read() for _ in range(flags.readers)))
    seconds = time.monotonic() - started
    return {
        "blocks": len(block_ms),  # complete blocks
        "seconds": seconds,
        "goodput_mbps": 8e-6 * received / seconds,
        "block_p50_ms": percentile(block_ms, 0.5),
        "block_p99_ms": percentile(block_ms, 0.99),
        "errors": errors,  # blocks that did not complete
        "error_sample": error_sample,
        "grpc_version": grpc.__version__,
    }


def percentile(values, share):
    """Returns the smallest value that is not below a share of all values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0


if __name__ == "__main__":
    try:
        print(json.dumps(asyncio.run(run(parse_flags())), indent=2))
    except grpc.aio.AioRpcError as error:
        sys.exit(f"aggregator: warm-up: {error.code().name}: {error.details()}")
