"""Synchronized reads over plain TCP sockets, without any of Sluice: shows what the network itself does.

    raw_incast.py serve SRU_BYTES READY_FILE HOST:PORT...        answers every byte with SRU_BYTES bytes
    raw_incast.py read SRU_BYTES BLOCKS IN_FLIGHT HOST:PORT...   reads blocks, at most IN_FLIGHT answers at a time
"""

import json
import pathlib
import selectors
import signal
import socket
import sys
import time


def _endpoint(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def serve(sru_bytes, ready_file, addresses):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    answer = bytes(sru_bytes)
    selector = selectors.DefaultSelector()

    def respond(connection):
        requests = connection.recv(64)
        if not requests:
            selector.unregister(connection)
            connection.close()
        for _ in requests:
            connection.sendall(answer)

    def accept(listener):
        connection, _ = listener.accept()
        selector.register(connection, selectors.EVENT_READ, respond)

    for address in addresses:
        listener = socket.create_server(_endpoint(address), backlog=16)
        selector.register(listener, selectors.EVENT_READ, accept)
    pathlib.Path(ready_file).touch()
    while True:
        for key, _ in selector.select():
            key.data(key.fileobj)


def read_block(selector, connections, sru_bytes, in_flight):
    waiting = list(reversed(connections))
    left = {}

    def request_next():
        connection = waiting.pop()
        left[connection] = sru_bytes
        connection.send(b"?")

    while waiting and len(left) < in_flight:
        request_next()
    while left:
        for key, _ in selector.select():
            got = len(key.fileobj.recv(min(1 << 20, left[key.fileobj])))
            if got == 0:
                raise ConnectionError("a sender went away")
            left[key.fileobj] -= got
            if left[key.fileobj] == 0:
                del left[key.fileobj]
                if waiting:
                    request_next()


def read(sru_bytes, blocks, in_flight, addresses):
    connections = [socket.create_connection(_endpoint(address), timeout=60) for address in addresses]
    selector = selectors.DefaultSelector()
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
    block_s = []
    for _ in range(blocks):
        start = time.monotonic()
        read_block(selector, connections, sru_bytes, in_flight)
        block_s.append(time.monotonic() - start)
    goodput_bps = 8 * sru_bytes * len(connections) * blocks / sum(block_s)
    print(json.dumps({"goodput_bps": goodput_bps, "block_s": block_s}))


if __name__ == "__main__":
    role, size, *rest = sys.argv[1:]
    if role == "serve":
        serve(int(size), rest[0], rest[1:])
    else:
        read(int(size), int(rest[0]), int(rest[1]), rest[2:])
