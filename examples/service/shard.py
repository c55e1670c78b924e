#!/usr/bin/env python3
"""A shard of an ordinary gRPC service: shard.py READY_FILE HOST:PORT... Answers each query with 10 KB."""

import concurrent.futures
import pathlib
import signal
import sys

import grpc

RESPONSE_BYTES = 10240


def main(ready_file, *addresses):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    search = grpc.unary_unary_rpc_method_handler(lambda _query, _context: bytes(RESPONSE_BYTES))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.Shards", {"Search": search})])
    for address in addresses:
        server.add_insecure_port(address)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(None))
    server.start()
    pathlib.Path(ready_file).touch()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
