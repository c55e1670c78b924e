#!/usr/bin/env python3
"""Opens tunnels through a proxy to byte_servers by CONNECT, reads one short response in each, writes a file, and holds
them without a byte until SIGTERM."""

import argparse
import asyncio
import contextlib
import pathlib
import signal
import struct

_AT_A_TIME = 100  # tunnels that are being opened
_RESPONSE_BYTES = 200
_REQUEST = struct.pack("=II92x", _RESPONSE_BYTES, 0)  # the ByteRequest of byte_message.h


async def _open(via, worker):
    reader, writer = await asyncio.open_connection(*via)
    writer.write(f"CONNECT {worker} HTTP/1.1\r\nHost: {worker}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head:
        raise RuntimeError(f"CONNECT {worker}: {head}")
    writer.write(_REQUEST)
    await reader.readexactly(_RESPONSE_BYTES)
    return reader, writer


async def _hold(flags):
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    host, _, port = flags.via.rpartition(":")
    workers = flags.workers.split(",")
    few = asyncio.Semaphore(_AT_A_TIME)

    async def open_one(i):
        async with few:
            return await _open((host, int(port)), workers[i % len(workers)])

    tunnels = await asyncio.gather(*(open_one(i) for i in range(flags.count)))
    flags.ready.touch()
    await over.wait()
    for reader, writer in tunnels:
        if reader.at_eof():
            raise RuntimeError("the proxy has closed an idle tunnel")
        writer.close()
    for _, writer in tunnels:
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--via", required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--ready", type=pathlib.Path, required=True)
    asyncio.run(_hold(parser.parse_args()))
