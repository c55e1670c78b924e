"""Synchronized reads over plain TCP sockets, without Sluice, to show the behavior of the network itself.

    raw_incast.py serve SRU_BYTES READY_FILE HOST:PORT...        answers every byte with SRU_BYTES bytes
    raw_incast.py read SRU_BYTES BLOCKS IN_FLIGHT SECONDS HOST:PORT...
        reads blocks with at most IN_FLIGHT responses under way, and gives up after SECONDS: many flows that time
        out together double their timeouts together, so one block can take a quarter of an hour
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
        try:
            requests = connection.recv(64)
            for _ in requests:
                connection.sendall(answer)
        except (ConnectionResetError, BrokenPipeError):  # a reader ended while a response was in flight
            requests = b""
        if not requests:
            selector.unregister(connection)
            connection.close()

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


class Reader:
    """Reads blocks over one connection to each sender until it has all blocks or the time is up."""

    def __init__(self, sru_bytes, in_flight, deadline, addresses):
        self._sru_bytes = sru_bytes
        self._in_flight = in_flight
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        self._connections = [socket.create_connection(_endpoint(address), timeout=60) for address in addresses]
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ)
        self._waiting = []
        self._left = {}
        self.bytes_read = 0

    def read_block(self):
        """Returns False if the time is up."""
        self._waiting = list(reversed(self._connections))
        for _ in range(min(self._in_flight, len(self._waiting))):
            self._request_next()
        while self._left:
            ready = self._selector.select(max(0, self._deadline - time.monotonic()))
            if not ready:
                return False
            for key, _ in ready:
                self._receive(key.fileobj)
        return True

    def _request_next(self):
        connection = self._waiting.pop()
        self._left[connection] = self._sru_bytes
        connection.send(b"?")

    def _receive(self, connection):
        got = len(connection.recv(1 << 20))
        if got == 0 or got > self._left.get(connection, 0):
            raise ConnectionError(f"{got} bytes arrived where {self._left.get(connection, 0)} were due")
        self.bytes_read += got
        self._left[connection] -= got
        if self._left[connection] == 0:
            del self._left[connection]
            if self._waiting:
                self._request_next()


def read(sru_bytes, blocks, in_flight, seconds, addresses):
    start = time.monotonic()
    reader = Reader(sru_bytes, in_flight, start + seconds, addresses)
    start = time.monotonic()
    blocks_read = 0
    while blocks_read < blocks and reader.read_block():
        blocks_read += 1
    goodput_bps = 8 * reader.bytes_read / (time.monotonic() - start)
    print(json.dumps({"goodput_bps": goodput_bps, "blocks": blocks_read}))


if __name__ == "__main__":
    role, size, *rest = sys.argv[1:]
    if role == "serve":
        serve(int(size), rest[0], rest[1:])
    else:
        read(int(size), int(rest[0]), int(rest[1]), float(rest[2]), rest[3:])
