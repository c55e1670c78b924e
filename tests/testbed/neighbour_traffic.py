"""Traffic through the port of the fan-outs that is not part of them.

    neighbour_traffic.py receive READY_FILE ARRIVED_FILE REPORT_FILE HOST:PORT
        counts what arrives over TCP and UDP, and touches the second file at the first byte
    neighbour_traffic.py bulk HOST:PORT FLOWS            as much as TCP allows
    neighbour_traffic.py on-off HOST:PORT SECONDS        one bulk flow, which ends and begins again after this time
    neighbour_traffic.py bursts HOST:PORT BYTES SECONDS  over one connection, this often
    neighbour_traffic.py udp HOST:PORT RATE_BPS          full packets at this rate, as the port counts them

All run until SIGTERM. The report is a list of pairs: seconds of the monotonic clock, and all bytes until then.
"""

import contextlib
import json
import pathlib
import selectors
import signal
import socket
import struct
import sys
import threading
import time

_SAMPLE_S = 0.05
_UDP_PAYLOAD_BYTES = 1472
_FRAME_BYTES = 1514
_BLOCK = bytes(256 * 1024)
_LEAST_PAUSE_S = 0.00025  # a pause after each packet would use a CPU at high rates
_CATCH_UP_S = 0.002  # a program that did not run for longer must not send all of its packets at once
_DISCARD = struct.pack("ii", 1, 0)  # SO_LINGER: close() drops the bytes that are not yet sent


class _Receiver:
    def __init__(self, address, arrived_file):
        self._arrived_file = pathlib.Path(arrived_file)
        self._buffer = bytearray(1 << 20)
        self._bytes = 0
        self._samples = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(socket.create_server(address), selectors.EVENT_READ, self._accept)
        # The program does not read datagrams, because the kernel would drop and not count some if the program was late.
        # It counts all that find a full socket.
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
        self._datagrams.bind(address)
        self._unread_before = _unread_datagrams()

    def run(self):
        due_s = time.monotonic()
        while True:
            for key, _ in self._selector.select(max(0, due_s - time.monotonic())):
                key.data(key.fileobj)
            if time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + _SAMPLE_S
            arrived = self._bytes + _UDP_PAYLOAD_BYTES * (_unread_datagrams() - self._unread_before)
            self._samples.append((time.monotonic(), arrived))
            if arrived:
                self._arrived_file.touch()

    def report(self):
        return self._samples

    def _accept(self, listener):
        connection, _ = listener.accept()
        self._selector.register(connection, selectors.EVENT_READ, self._receive)

    def _receive(self, connection):
        try:
            count = connection.recv_into(self._buffer)
        except ConnectionResetError:
            count = 0
        if not count:
            self._selector.unregister(connection)
            connection.close()
        self._bytes += count


def _unread_datagrams():
    """Returns the datagrams of this network namespace that found a full socket. No other program in it uses UDP."""
    lines = pathlib.Path("/proc/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def _receive(ready_file, arrived_file, report_file, address):
    receiver = _Receiver(_endpoint(address), arrived_file)

    def end(*_):
        pathlib.Path(report_file).write_text(json.dumps(receiver.report()))
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    pathlib.Path(ready_file).touch()
    receiver.run()


def _bulk(address, flows):
    def send():
        connection = socket.create_connection(_endpoint(address))
        while True:
            connection.sendall(_BLOCK)

    for _ in range(int(flows)):
        threading.Thread(target=send, daemon=True).start()
    signal.pause()


def _on_off(address, seconds):
    while True:
        with socket.create_connection(_endpoint(address)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
            end_s = time.monotonic() + float(seconds)
            while time.monotonic() < end_s:
                connection.settimeout(max(0.001, end_s - time.monotonic()))
                with contextlib.suppress(TimeoutError):
                    connection.sendall(_BLOCK)
        time.sleep(float(seconds))


def _bursts(address, burst_bytes, seconds):
    connection = socket.create_connection(_endpoint(address))
    due_s = time.monotonic()
    while True:
        time.sleep(max(0, due_s - time.monotonic()))
        connection.sendall(bytes(int(burst_bytes)))
        due_s += float(seconds)


def _udp(address, rate_bps):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect(_endpoint(address))
    payload, gap_s = bytes(_UDP_PAYLOAD_BYTES), 8 * _FRAME_BYTES / float(rate_bps)
    due_s = time.monotonic()
    while True:
        time.sleep(max(_LEAST_PAUSE_S, due_s - time.monotonic()))
        due_s = max(due_s, time.monotonic() - _CATCH_UP_S)
        while due_s <= time.monotonic():
            datagrams.send(payload)
            due_s += gap_s


def _endpoint(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    role, *rest = sys.argv[1:]
    {"receive": _receive, "bulk": _bulk, "on-off": _on_off, "bursts": _bursts, "udp": _udp}[role](*rest)
