"""The load of a chaos run, which checks every byte: reads of striped files, calls and fan-outs through the proxy, and
tunnels of another protocol. A call may fail with a status that names a reason; it may not bring a wrong byte, and must end
in time."""

import collections
import random
import re
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time

from stock_grpc import grpc
from world import AGGREGATOR, BYTES_PORT, FILE, MID_LEVEL, PART, PORT, PROXY, WORKERS, name_of

DEADLINE_S = 8
GRACE_S = 5  # after its deadline a call must have ended within this time
ENOUGH = 5  # calls in a row
# Statuses with which a call may fail. DATA_LOSS is a disk with errors; sluice-cat has a reason and an exit code.
STATUSES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "DATA_LOSS", "CANCELLED", "EXIT_CODE_1")
READ_SRU = "/sluice.v1.SruService/ReadSru"
_SAMPLES = 200  # different errors that a report has
_COMPLAINTS = 20


class ByteServer(socketserver.ThreadingTCPServer):
    """Answers a size of 4 bytes with as many bytes of the data."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address, data):
        super().__init__((address, BYTES_PORT), _Sizes)
        self.data = data
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Sizes(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while size := self.rfile.read(4):
                self.wfile.write(self.server.data[: struct.unpack("!I", size)[0]])
        except (OSError, struct.error):
            pass


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def _read_request(worker, offset, length):
    return (b"\x0a" + _varint(len(PART)) + PART.encode() + b"\x10" + _varint(worker) + b"\x20" + _varint(offset) + b"\x28" +
            _varint(length))  # fmt: skip


def _bytes_of(message):
    at, size, shift = 1, 0, 0
    while True:
        size |= (message[at] & 127) << shift
        shift += 7
        at += 1
        if message[at - 1] < 128:
            return message[at : at + size]


class Wrong(Exception):
    """A byte or an end that must not be."""


class Failed(Exception):
    """A call that failed as it may. Names the status and the reason."""


class Load:
    def __init__(self, world, seed):
        self.counts = collections.Counter()
        self.samples = collections.Counter()
        self.complaints = []
        self._complained = set()
        self._world = world
        self._stripes = [world.stripe(worker) for worker in range(WORKERS)]
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._in_a_row = collections.Counter()
        self._began = {}
        kinds = {"cat aggregator": self._cat_aggregator, "cat mid-level": self._cat_mid_level, "calls": self._calls,
                 "fan-outs": self._fan_outs, "calls by TLS": self._calls_by_tls, "tunnels": self._tunnels}  # fmt: skip
        self._threads = {kind: threading.Thread(name=kind, target=self._run,
                                                args=(kind, call, random.Random(f"{seed} {kind}")))
                         for kind, call in kinds.items()}  # fmt: skip
        for thread in self._threads.values():
            thread.start()

    def stop(self):
        self._ends.set()
        for thread in self._threads.values():
            thread.join()

    def complain(self, text):
        general = re.sub(r"\d+(\.\d+)?", "N", text)
        with self._lock:
            if general not in self._complained and len(self.complaints) < _COMPLAINTS:
                self.complaints.append(text)
            self._complained.add(general)

    def check(self):
        """Complains of calls that do not end."""
        with self._lock:
            late = [kind for kind, began in self._began.items() if time.monotonic() > began + DEADLINE_S + GRACE_S]
        for kind in late:
            self.complain(f"{kind}: a call has not ended within {DEADLINE_S + GRACE_S} s")

    def begin_anew(self):
        with self._lock:
            self._in_a_row.clear()

    def missing(self):
        """Kinds of which not enough calls in a row have succeeded since begin_anew."""
        with self._lock:
            return [kind for kind in self._threads if self._in_a_row[kind] < ENOUGH]

    def _run(self, kind, call, dice):
        while not self._ends.wait(dice.uniform(0, 0.05)):
            with self._lock:
                self._began[kind] = time.monotonic()
            try:
                call(dice)
                self._count(kind, "OK")
            except Failed as failed:
                status, _, reason = str(failed).partition(": ")
                self._count(kind, status, reason)
            except Wrong as wrong:
                self.complain(f"{kind}: {wrong}")
            except Exception as error:  # a defect of this file
                self.complain(f"{kind}: {error!r}")
                self._ends.wait(1)
            with self._lock:
                self._began.pop(kind)

    def _count(self, kind, status, reason=""):
        with self._lock:
            self.counts[f"{kind}: {status}"] += 1
            self._in_a_row[kind] = self._in_a_row[kind] + 1 if status == "OK" else 0
            if status != "OK":
                general = re.sub(r"\d+(\.\d+)?", "N", reason)
                if len(self.samples) < _SAMPLES or f"{status}: {general}" in self.samples:
                    self.samples[f"{status}: {general}"] += 1
        if status != "OK" and (status not in STATUSES or not reason.strip()):
            self.complain(f"{kind}: failed with {status}: {reason!r}")

    # --- Reads of files.

    def _cat(self, aggregator, file, expected):
        ca, certificate, key = self._world.own_files()
        argv = [self._world.build / "bin/sluice-cat", "--aggregator", aggregator, "--timeout", f"{DEADLINE_S}s", "--tls_ca", ca,
                "--tls_certificate", certificate, "--tls_key", key, file]  # fmt: skip
        try:
            result = subprocess.run(argv, capture_output=True, check=False, timeout=DEADLINE_S + GRACE_S)
        except subprocess.TimeoutExpired:
            raise Wrong(f"sluice-cat has not ended within {DEADLINE_S + GRACE_S} s") from None
        error = result.stderr.decode()
        if not expected.startswith(result.stdout):
            raise Wrong("sluice-cat wrote wrong bytes")
        if result.returncode == 0:
            if result.stdout != expected:
                raise Wrong("sluice-cat lost bytes")
            return
        if result.returncode != 1 or error.count("\n") != 1:
            raise Wrong(f"sluice-cat ended with {result.returncode}: {error}")
        raise Failed(f"EXIT_CODE_1: {error.removeprefix('sluice-cat: ')}")

    def _cat_aggregator(self, _dice):
        self._cat(AGGREGATOR, FILE, self._world.data)

    def _cat_mid_level(self, _dice):
        self._cat(MID_LEVEL, PART, self._world.data)

    # --- Calls through the proxy.

    def _calls(self, dice):
        with grpc.insecure_channel(f"unix:{self._world.folder}/proxy.sock", _OPTIONS) as channel:
            for _ in range(20):
                self._read(channel, dice, [dice.randrange(WORKERS)])

    def _calls_by_tls(self, dice):
        ca, certificate, key = (file.read_bytes() for file in self._world.own_files())
        with grpc.secure_channel(PROXY, grpc.ssl_channel_credentials(ca, key, certificate), _OPTIONS) as channel:
            for _ in range(5):
                self._read(channel, dice, [dice.randrange(WORKERS)])

    def _fan_outs(self, dice):
        block = [("sluice-block", f"{dice.getrandbits(60)}"), ("sluice-weight", str(2 * WORKERS))]
        with grpc.insecure_channel(f"unix:{self._world.folder}/proxy.sock", _OPTIONS) as channel:
            self._read(channel, dice, list(range(WORKERS)) * 2, block)

    def _read(self, channel, dice, workers, metadata=()):
        """Reads a range from each of the workers at the same time, and fails with the first of their errors."""
        with self._lock:
            self._began[threading.current_thread().name] = time.monotonic()  # each call of a turn has its own deadline
        read = channel.unary_stream(READ_SRU)
        calls = []
        for worker in workers:
            offset = dice.randrange(len(self._stripes[worker]) - 1)
            length = dice.randrange(1, min(60_000, len(self._stripes[worker]) - offset) + 1)
            call = read(_read_request(worker, offset, length), timeout=DEADLINE_S,
                        metadata=[*metadata, ("x-worker", f"{name_of(worker)}:{PORT}")])  # fmt: skip
            calls.append((call, self._stripes[worker][offset : offset + length]))
        failed = None
        for call, expected in calls:
            got = b""
            try:
                for message in call:
                    got += _bytes_of(message)
                if got != expected:
                    raise Wrong(f"{len(got)} bytes came, {len(expected)} were to come, or they are wrong")
            except grpc.RpcError as error:
                failed = failed or Failed(f"{error.code().name}: {error.details()}")
            if not expected.startswith(got):
                raise Wrong("wrong bytes came before the call failed")
        if failed:
            raise failed

    # --- Tunnels.

    def _tunnels(self, dice):
        ca, certificate, key = self._world.own_files()
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(certificate, key)
        host, port = PROXY.split(":")
        try:
            with socket.create_connection((host, int(port)), DEADLINE_S) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as client:
                    self._ask(client, f"{name_of(dice.randrange(WORKERS))}:{BYTES_PORT}", dice)
        except TimeoutError as error:
            raise Failed(f"DEADLINE_EXCEEDED: tunnel, {error!r}") from None
        except OSError as error:
            raise Failed(f"UNAVAILABLE: tunnel, {error!r}") from None

    def _ask(self, client, target, dice):
        client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        with client.makefile("rb") as answers:
            status = answers.readline()
            while answers.readline().strip():
                pass
            if not status:
                raise Failed("UNAVAILABLE: tunnel, the connection ended before the response")
            if b" 200 " not in status:
                raise Failed(f"UNAVAILABLE: tunnel, {status!r}" if b" 50" in status else f"UNKNOWN: {status!r}")
            for _ in range(dice.randrange(1, 10)):
                size = int(10 ** dice.uniform(0, 5))
                with self._lock:
                    self._began["tunnels"] = time.monotonic()
                client.sendall(struct.pack("!I", size))
                got = answers.read(size)
                if not self._world.data.startswith(got):
                    raise Wrong("wrong bytes came through a tunnel")
                if len(got) < size:
                    raise Failed("UNAVAILABLE: tunnel, the connection ended")


_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200), ("grpc.enable_http_proxy", 0)]  # fmt: skip
