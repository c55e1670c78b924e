#!/usr/bin/env python3
"""Reads one large response from a byte_server in a tunnel, or sends it many requests at once and reads as many short
responses, and compares every byte. Writes a file once a part has come, and a line of JSON at the end."""

import argparse
import json
import pathlib
import socket
import struct
import threading

_PERIOD = 1 << 21  # ByteAt of byte_message.h repeats itself after so many bytes
_FIRST_PART_BYTES = 1 << 16
_READ_BYTES = 1 << 18


def _pattern(response_bytes):
    return bytes((((place * 2654435761 + response_bytes) >> 13) & 0xFF) for place in range(min(_PERIOD, response_bytes)))


def _open(via, worker):
    host, _, port = via.rpartition(":")
    tunnel = socket.create_connection((host, int(port)))
    tunnel.sendall(f"CONNECT {worker} HTTP/1.1\r\nHost: {worker}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += tunnel.recv(1)
    if b" 200 " not in head:
        raise RuntimeError(f"CONNECT {worker}: {head}")
    return tunnel


def main(flags):
    tunnel = _open(flags.via, flags.worker)
    pattern = _pattern(flags.response)
    total = flags.response * flags.requests
    requests = struct.pack("=II92x", flags.response, 0) * flags.requests
    threading.Thread(target=tunnel.sendall, args=(requests,), daemon=True).start()
    got = wrong = 0
    while got < total:
        part = tunnel.recv(_READ_BYTES)
        if not part:
            raise RuntimeError(f"the tunnel has ended after {got} of {total} bytes")
        at = got
        while part:
            place = at % flags.response % len(pattern)
            piece, part = part[: len(pattern) - place], part[len(pattern) - place :]
            if piece != pattern[place : place + len(piece)]:
                wrong += 1
            at += len(piece)
        got = at
        if got >= min(_FIRST_PART_BYTES, total // 100):
            flags.begun.touch()
    print(json.dumps({"bytes": got, "wrong_pieces": wrong, "sent_bytes": len(requests)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--via", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--response", type=int, required=True, help="bytes of a response")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--begun", type=pathlib.Path, required=True)
    main(parser.parse_args())
