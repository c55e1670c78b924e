"""A name server for tests. It only resolves the names that a test sets."""

import socket
import struct
import threading

_A, _AAAA = 1, 28
_NO_ERROR, _SERVER_FAILURE, _NO_SUCH_NAME = 0, 2, 3


class NameServer:
    """Responds over UDP until it is closed. Thread-safe."""

    def __init__(self, address, port=53):
        self._lock = threading.Lock()
        self._addresses = {}
        self._asked = {}
        self._failing = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, port))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def set(self, name, *addresses):
        """Sets the addresses of a name from now on. Without addresses the name does not exist."""
        with self._lock:
            self._addresses[name] = addresses

    def fail(self, failing):
        """Turns failing on or off. A failing server returns SERVFAIL for every name."""
        with self._lock:
            self._failing = failing

    def asked(self, name):
        """Returns the number of requests for an address of the name."""
        with self._lock:
            return self._asked.get(name, 0)

    def close(self):
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self):
        while True:
            query, client = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query):
        name, end = self._name_in(query)
        kind = struct.unpack_from("!H", query, end)[0]
        with self._lock:
            addresses = self._addresses.get(name)
            failing = self._failing
            if kind == _A:
                self._asked[name] = self._asked.get(name, 0) + 1
        code = _SERVER_FAILURE if failing else _NO_SUCH_NAME if not addresses else _NO_ERROR
        found = addresses if code == _NO_ERROR and kind == _A else ()
        header = query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(found), 0, 0)
        question = query[12:end + 4]
        # Each record refers to the name of the question, and holds an Internet address with a lifetime of 0.
        answers = [struct.pack("!HHHIH", 0xC00C, _A, 1, 0, 4) + socket.inet_aton(address) for address in found]
        return b"".join([header, question, *answers])

    @staticmethod
    def _name_in(query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        return ".".join(labels).lower(), at + 1
