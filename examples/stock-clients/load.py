"""The common part of the loads: flags, warm-up, start file, and the report in JSON.

A load reads blocks. A block is one object, of which each worker has one part.
"""

import argparse
import json
import math
import pathlib
import sys
import time


def parse_flags(description):
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--workers", type=lambda text: text.split(","), required=True, metavar="HOST:PORT,...")
    add("--data", type=pathlib.Path, required=True, metavar="DIR", help="folder with the object and the certificate")
    add("--blocks", type=int, default=20)
    add("--warmup-blocks", type=int, default=2)
    add("--start-file", type=pathlib.Path, required=True, help='after the warm-up, write "warm" and wait for this file')
    return parser.parse_args()


def parts_of_object(flags):
    """Returns the part of each worker."""
    whole = (flags.data / "object").read_bytes()
    size = len(whole) // len(flags.workers)
    return [whole[i * size : (i + 1) * size] for i in range(len(flags.workers))]


def check_parts(parts, received):
    """Raises ValueError if a byte is wrong."""
    for i, (part, other) in enumerate(zip(parts, received, strict=True)):
        if part != other:
            raise ValueError(f"part {i} is wrong: {len(other or b'')} bytes of {len(part)}")


def measure(flags, read_block):
    """Prints the report. `read_block` reads one block, and returns its bytes once they are compared."""
    for _ in range(flags.warmup_blocks):
        read_block()
    print("warm", file=sys.stderr, flush=True)
    while not flags.start_file.exists():
        time.sleep(0.002)
    took_ms = []
    read_bytes = 0
    started_s = time.monotonic()
    for _ in range(flags.blocks):
        block_started_s = time.monotonic()
        read_bytes += read_block()
        took_ms.append(1e3 * (time.monotonic() - block_started_s))
    seconds = time.monotonic() - started_s
    report = {
        "blocks": flags.blocks,
        "seconds": seconds,
        "goodput_mbps": 8e-6 * read_bytes / seconds,
        "block_p50_ms": _percentile(took_ms, 0.5),
        "block_p99_ms": _percentile(took_ms, 0.99),
        "errors": 0,
    }
    print(json.dumps(report))


def _percentile(values, share):
    """Returns the smallest value that is not below a share of all values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
