"""Tests TLS between every pair of programs: plaintext, TLS and mTLS, each with the right certificates and with one fault. A
call must end in time, with an error that names what is wrong, at the client or in the log of the server.

The admin ports and sluice-link have no TLS; a test says what their users see.

Run as: sluice_tls_matrix_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments]. Exits with code 77 and prints the reason if
Python has no grpcio.
"""

import collections
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "proxy"))

from stock_grpc import grpc  # noqa: E402, I001
from certificates import Authority, Mounted, handshake, serial  # noqa: E402
from serving import Server, main, metric, run, wait_until  # noqa: E402

BOUND = 60  # seconds within which each call must have ended on any machine; the slowest retry for 2
PARALLEL = 8
# The striped file at a mid-level aggregator, and its part at the workers.
FILE, PART = "data", "data.w0000.s0"
RECONNECTS = "sluice_worker_reconnect_seconds_count"
OWN = "spiffe://example/own"


@dataclasses.dataclass(frozen=True)
class Serving:
    """How a program serves: plaintext, TLS or mTLS. A certificate is the name of its files."""

    mode: str = "plaintext"
    identity: str = "own"


@dataclasses.dataclass(frozen=True)
class Calling:
    """How a program calls. None: the flag is not given."""

    ca: str = None
    identity: str = None
    server_name: str = None
    crl: bool = False
    target: str = None  # of a client of the proxy, in place of the worker


RIGHT = {"plaintext": Calling(), "tls": Calling("authority"), "mtls": Calling("authority", "own")}
PLAINTEXT = {"ca": None, "identity": None}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of the client or of the server, and the error of the client. None: only the log of the server tells.
    SERVER stands for the address of the server, CLIENT for any address."""

    name: str
    modes: tuple
    says: str
    client: dict = dataclasses.field(default_factory=dict)
    server: dict = dataclasses.field(default_factory=dict)
    log: str = "msg=serving"


SERVED = ("tls", "mtls")
MUTUAL = ("mtls",)
ASKED = "SERVER ended the connection after it asked for a certificate of this client; this client "
REFUSED = r'msg="a client\'s TLS handshake has failed" .*reason="'
NAMES = "localhost, 127.0.0.1, spiffe://example/"

# The faults between a client of this project and a worker or an aggregator.
FAULTS = (
    Fault("server expired", SERVED, r"the certificate of SERVER expired at 20\d\d-", server={"identity": "expired"}),
    Fault("server of an unknown authority", SERVED,
          'the certificate of SERVER is signed by an unknown authority, "authority"', {"ca": "stranger"}),
    Fault("server of another name", SERVED, f"the certificate of SERVER is for {NAMES}own, not other.example",
          {"server_name": "other.example"}),
    Fault("server revoked", SERVED, "the certificate of SERVER is revoked", {"crl": True}, {"identity": "revoked"}),
    Fault("client without a certificate", MUTUAL, ASKED + "has none", {"identity": None},
          log="peer did not return a certificate"),
    Fault("client expired", MUTUAL, ASKED + r'showed "expired" of the authority "authority", which expired at 20\d\d-',
          {"identity": "expired"}, log=rf"{REFUSED}the certificate of a client \({NAMES}own\) expired at 20\d\d-"),
    Fault("client of an unknown authority", MUTUAL,
          ASKED + r'showed "foreign" of the authority "stranger", valid until 20\d\d-', {"identity": "foreign"},
          log=rf'{REFUSED}the certificate of a client \({NAMES}own\) is signed by an unknown authority, \\"stranger\\"'),
    Fault("client revoked", MUTUAL, ASKED + r'showed "revoked" of the authority "authority", valid until 20\d\d-',
          {"identity": "revoked"}, log=rf"{REFUSED}the certificate of a client \({NAMES}revoked\) is revoked"),
    Fault("client that no rule allows", MUTUAL,
          "spiffe://example/other, localhost may not call .*: no rule of access has this client", {"identity": "other"},
          log='msg="a call is refused" client="spiffe://example/other, localhost"'),
    Fault("plaintext client", SERVED, "SERVER ended the connection before HTTP/2 began; it may expect TLS", PLAINTEXT,
          log="wrong version number"),
    Fault("client with TLS", ("plaintext",), "SERVER: the other side does not speak TLS", {"ca": "authority"}),
)  # fmt: skip

# The faults between a stock client and the proxy: gRPC, whose errors name no reason, and Python's TLS, which asks for a
# tunnel.
LISTENER_FAULTS = (
    Fault("server expired", MUTUAL, "certificate verify failed(: certificate has expired)?", server={"identity": "expired"}),
    Fault("server of an unknown authority", MUTUAL, "certificate verify failed(: self-signed certificate in)?",
          {"ca": "stranger"}),
    Fault("server of another name", MUTUAL, "Hostname mismatch|Peer name other.example is not in peer certificate",
          {"server_name": "other.example"}),
    Fault("server revoked", MUTUAL, "certificate verify failed: certificate revoked", {"crl": True}, {"identity": "revoked"},
          log='refuses the certificate of this listener: TLS alert ."certificate revoked'),
    Fault("client without a certificate", MUTUAL, "alert certificate required|UNAVAILABLE", {"identity": None},
          log=REFUSED + "CLIENT showed no certificate"),
    Fault("client expired", MUTUAL, "alert certificate expired|UNAVAILABLE", {"identity": "expired"},
          log=REFUSED + r"the certificate of CLIENT expired at 20\d\d-"),
    Fault("client of an unknown authority", MUTUAL, "alert unknown ca|UNAVAILABLE", {"identity": "foreign"},
          log=REFUSED + r'the certificate of CLIENT is signed by an unknown authority, \\"stranger\\"'),
    Fault("client revoked", MUTUAL, "alert certificate revoked|UNAVAILABLE", {"identity": "revoked"},
          log=REFUSED + "the certificate of CLIENT is revoked"),
    Fault("client of another name", MUTUAL, "alert bad certificate|UNAVAILABLE", {"identity": "nobody"},
          log=REFUSED + f"the certificate of CLIENT is for {NAMES}nobody, and has none of client_names"),
    Fault("client with other workers", MUTUAL, '"127.0.0.1:1" is not among the workers|is a loopback address',
          {"identity": "other"}, log='msg="a client was refused" client=CLIENT target=127.0.0.1'),
    Fault("worker that no pattern permits", ("plaintext", "mtls"), '"10.0.0.1:1" is not among the workers',
          {"target": "10.0.0.1:1"}, log='msg="a client was refused" client=CLIENT target=10.0.0.1:1'),
    Fault("plaintext client", MUTUAL, "closed", PLAINTEXT, log=REFUSED + "CLIENT: the other side does not speak TLS"),
    Fault("client with TLS", ("plaintext",), "closed", {"ca": "authority"}, log="the client sends TLS, and this address "
          "takes plaintext HTTP/2, CONNECT or SOCKS5; let it use plaintext, or an address tls:host:port"),
)  # fmt: skip


class Programs:
    """The certificates and servers of all cells. A server is started once for its settings. Thread-safe."""

    def __init__(self, folder):
        self._folder = folder
        self._lock = threading.Lock()
        self._started = {}
        self._numbers = itertools.count()
        self._all = []
        authority = Authority(folder, "authority")
        hosts = "DNS:localhost,IP:127.0.0.1,URI:spiffe://example/"
        for name in ("own", "other", "nobody", "revoked"):
            authority.issue(name, hosts=hosts + name)
        authority.issue("expired", hosts=hosts + "own", days=-1)
        Authority(folder, "stranger").issue("foreign", hosts=hosts + "own")
        authority.revoke("crl.pem", self.path("revoked.pem"))
        self.write("access.json", {"access": [{"names": [OWN]}]})

    def path(self, *names):
        return os.path.join(self._folder, *names)

    def write(self, name, fields):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(fields, file)
        return self.path(name)

    def number(self):
        with self._lock:
            return next(self._numbers)

    def authority_of(self, identity):
        return self.path("stranger.pem" if identity == "foreign" else "authority.pem")

    def start(self, name, *flags):
        server = Server(self._folder, name, *flags)
        with self._lock:
            self._all.append(server)
        return server

    def close(self):
        for server in self._all:
            server.close()

    def _once(self, key, start):
        with self._lock:
            mine = key not in self._started
            made = self._started.setdefault(key, concurrent.futures.Future())
        if mine:
            try:
                made.set_result(start())
            except AssertionError as error:
                made.set_exception(error)
        return made.result()

    def _identity_flags(self, name):
        return ("--tls_certificate", self.path(f"{name}.pem"), "--tls_key", self.path(f"{name}.key")) if name else ()

    def _serving_flags(self, serving):
        if serving.mode == "plaintext":
            return ()
        own = self._identity_flags(serving.identity)
        if serving.mode == "tls":
            return own
        return (*own, "--tls_client_ca", self.path("authority.pem"), "--tls_crl", self.path("crl.pem"), "--config",
                self.path("access.json"))  # fmt: skip

    def calling_flags(self, calling):
        flags = self._identity_flags(calling.identity)
        flags += ("--tls_ca", self.path(f"{calling.ca}.pem")) if calling.ca else ()
        flags += ("--tls_server_name", calling.server_name) if calling.server_name else ()
        return flags + (("--tls_crl", self.path("crl.pem")) if calling.crl else ())

    def aggregator(self, below, *flags, connect_timeout="200ms"):
        # Do not wait for the servers: some cells make them unreachable.
        return self.start("sluice-aggregator", "--listen", "127.0.0.1:0", "--connect_timeout", connect_timeout, "--workers",
                          ",".join(below), *flags)  # fmt: skip

    def server(self, kind, serving=Serving()):
        """The servers below it have no TLS."""
        flags = self._serving_flags(serving)
        if kind == "worker":
            return self._once((kind, serving), lambda: self.start(
                "sluice-worker", "--data", self.path("stripes", "mla-0000"), "--listen", "127.0.0.1:0,127.0.0.1:0",
                "--admin", "127.0.0.1:0", *flags))  # fmt: skip
        if kind == "mid-level":
            below = self.server("worker").addresses[:2]
            return self._once((kind, serving), lambda: self.aggregator(below, "--mid_level", *flags))
        below = self.server("mid-level").addresses[:1]
        return self._once((kind, serving), lambda: self.aggregator(below, *flags))

    def proxy(self, serving):
        """A proxy of its own for each cell, because it logs only one handshake in a second."""
        fields = {"listen": ["127.0.0.1:0"], "workers": ["127.0.0.0/8"], "worker_header": "x-worker"}
        if serving.mode == "mtls":
            fields |= {
                "listen": ["tls:127.0.0.1:0"],
                "listener_tls": {
                    "certificate": self.path(f"{serving.identity}.pem"), "key": self.path(f"{serving.identity}.key"),
                    "client_ca": self.path("authority.pem"), "crl": self.path("crl.pem"),
                    "client_names": [OWN, "spiffe://example/other", "spiffe://example/revoked"]},
                "clients": [{"names": ["spiffe://example/other"], "workers": ["127.0.0.1:1"]}],
            }  # fmt: skip
        return self.start("sluice-proxy", "--config", self.write(f"proxy-{self.number()}.json", fields))


@dataclasses.dataclass(frozen=True)
class Outcome:
    right: bool  # the call brought the right bytes
    error: str


class Caller:
    """Calls a server in the way of each client."""

    def __init__(self, programs, data):
        self._programs = programs
        self._data = data
        # A call of these servers in plaintext returns the bytes that all other calls must return.
        self._manifests = {FILE: self._read_manifest(programs.server("mid-level").addresses[0], FILE),
                           PART: self._read_manifest(programs.server("worker").addresses[0], PART)}  # fmt: skip

    def cat(self, calling, server):
        return self._cat(server.addresses[0], FILE, *self._programs.calling_flags(calling))

    def aggregator(self, calling, server):
        return self._through_aggregator(self._programs.aggregator(server.addresses[:1], *self._flags(calling)), calling, FILE)

    def aggregator_of_workers(self, calling, server):
        below = self._programs.aggregator(server.addresses[:2], *self._flags(calling))
        return self._through_aggregator(below, calling, PART)

    def mid_level(self, calling, server):
        # Nobody can call a server whose certificate has expired. Its log says, after this time, why no worker is connected.
        expired = calling.identity == "expired"
        own = self._programs.aggregator(server.addresses[:2], "--mid_level", *self._flags(calling),
                                        connect_timeout="6s" if expired else "200ms")  # fmt: skip
        if expired:
            return Outcome(False, own.text().replace('\\"', '"'))
        trust = dataclasses.replace(calling, ca=calling.identity and self._programs.authority_of(calling.identity))
        return self._stock(own.addresses[0], FILE, self._channel(own.addresses[0], trust.ca, None))

    def proxy(self, calling, server):
        path = self._programs.path(f"proxy-{self._programs.number()}.sock")
        self._programs.start("sluice-proxy", "--listen", f"unix:{path}", "--workers", "127.0.0.0/8", *self._flags(calling))
        return self._stock(f"unix:{path}", PART, authority=server.addresses[0])

    def stock_grpc(self, calling, server):
        """A gRPC client of the proxy."""
        ca = calling.ca and self._programs.path(f"{calling.ca}.pem")
        channel = self._channel(server.addresses[0].removeprefix("tls:"), ca, calling.identity, calling.server_name)
        worker = calling.target or self._programs.server("worker").addresses[0]
        return self._stock("", PART, channel, [("x-worker", worker)])

    def tunnel(self, calling, server):
        """A client that asks the proxy for a tunnel to the admin port of the worker."""
        host, port = server.addresses[0].removeprefix("tls:").split(":")
        admin = self._programs.server("worker").addresses[-1]
        try:
            with socket.create_connection((host, int(port)), 2 * BOUND) as plain, self._secured(plain, calling) as client:
                client.sendall(f"CONNECT {calling.target or admin} HTTP/1.1\r\n\r\n".encode())
                status = client.recv(1000).decode()
                if " 200 " not in status:
                    return Outcome(False, status or "the connection is closed")
                client.sendall(f"GET /livez HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n".encode())
                response = b"".join(iter(lambda: client.recv(1000), b""))
                return Outcome(response.startswith(b"HTTP/1.1 200 "), response.decode())
        except OSError as error:
            return Outcome(False, str(error))

    def _secured(self, plain, calling):
        if calling.ca is None:
            return plain
        context = ssl.create_default_context(cafile=self._programs.path(f"{calling.ca}.pem"))
        if calling.crl:
            context.load_verify_locations(self._programs.path("crl.pem"))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if calling.identity:
            context.load_cert_chain(*(self._programs.path(calling.identity + end) for end in (".pem", ".key")))
        return context.wrap_socket(plain, server_hostname=calling.server_name or "localhost")

    def _flags(self, calling):
        return self._programs.calling_flags(calling)

    def _through_aggregator(self, aggregator, calling, file):
        # An aggregator shows the same certificate to its clients, which would refuse an expired one, too.
        if calling.identity == "expired":
            return Outcome(False, aggregator.text().replace('\\"', '"'))
        trust = ("--tls_ca", self._programs.authority_of(calling.identity)) if calling.identity else ()
        return self._cat(aggregator.addresses[0], file, *trust)

    def _cat(self, aggregator, file, *flags):
        result = run("sluice-cat", "--aggregator", aggregator, "--timeout", f"{2 * BOUND}s", *flags, file)
        return Outcome(result.returncode == 0 and result.stdout == self._data, result.stderr.decode())

    def _stock(self, target, file, channel=None, metadata=(), authority=None):
        try:
            return Outcome(self._read_manifest(target, file, channel, metadata, authority) == self._manifests[file], "")
        except grpc.RpcError as error:
            return Outcome(False, f"{error.code().name}: {error.details()}")

    @staticmethod
    def _read_manifest(target, file, channel=None, metadata=(), authority=None):
        options = [("grpc.enable_http_proxy", 0)] + ([("grpc.default_authority", authority)] if authority else [])
        request = bytes([10, len(file)]) + file.encode() + b"\x20\x80\x80\x04"  # at most 64 KB
        with channel or grpc.insecure_channel(target, options) as opened:
            call = opened.unary_unary("/sluice.v1.SruService/ReadManifest")
            return call(request, timeout=2 * BOUND, metadata=metadata)

    def _channel(self, target, ca, identity, server_name=None):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        options += [("grpc.ssl_target_name_override", server_name)] if server_name else []
        if ca is None:
            return grpc.insecure_channel(target, options)
        files = [ca] + ([self._programs.path(identity + end) for end in (".key", ".pem")] if identity else [])
        credentials = grpc.ssl_channel_credentials(*(pathlib.Path(file).read_bytes() for file in files))
        return grpc.secure_channel(target, credentials, options)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A client, by the name of its method of Caller, and the server that it calls."""

    client: str
    server: str
    faults: tuple = FAULTS
    modes: tuple = ("plaintext", "tls", "mtls")
    leaves_out: str = None  # a fault that this client cannot have

    def __str__(self):
        return f"{self.client} to {self.server}"


PAIRS = (
    Pair("cat", "aggregator", leaves_out="server revoked"),  # tools have no list of revoked certificates
    Pair("aggregator", "mid-level"),
    Pair("aggregator_of_workers", "worker"),
    Pair("mid_level", "worker"),
    Pair("proxy", "worker"),
    # The proxy has no TLS without certificates of its clients.
    Pair("stock_grpc", "proxy", LISTENER_FAULTS, ("plaintext", "mtls"), "server revoked"),
    Pair("tunnel", "proxy", LISTENER_FAULTS, ("plaintext", "mtls")),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    pair: Pair
    mode: str
    fault: Fault = None

    def __str__(self):
        return f"{self.pair}, {self.mode}, {self.fault.name if self.fault else 'right'}"


def cells():
    for pair in PAIRS:
        for mode in pair.modes:
            yield Cell(pair, mode)
            for fault in pair.faults:
                if mode in fault.modes and fault.name != pair.leaves_out:
                    yield Cell(pair, mode, fault)


class MatrixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-matrix-")
        cls.addClassCleanup(folder.cleanup)
        cls.programs = Programs(folder.name)
        cls.addClassCleanup(cls.programs.close)
        data = random.Random(1).randbytes(123456)
        with open(cls.programs.path("input"), "wb") as file:
            file.write(data)
        striped = run("sluice-stripe", "--out", cls.programs.path("stripes"), "--workers", "1x2", "--sru", "5000", "--name",
                      FILE, "--replicas", "1x2", cls.programs.path("input"))  # fmt: skip
        if striped.returncode != 0:
            raise AssertionError(striped.stderr)
        cls.caller = Caller(cls.programs, data)

    def attempt(self, cell):
        """Returns the server, the outcome and the time of a call, and the log of the server."""
        fault = cell.fault or Fault("right", (), says="")
        serving = dataclasses.replace(Serving(cell.mode), **fault.server)
        server = self.programs.proxy(serving) if cell.pair.server == "proxy" else self.programs.server(cell.pair.server, serving)
        call = getattr(self.caller, cell.pair.client)
        since = time.monotonic()
        outcome = call(dataclasses.replace(RIGHT[cell.mode], **fault.client), server)
        took = time.monotonic() - since
        while not re.search(self.expected(fault.log, server), server.text()) and time.monotonic() < since + BOUND:
            time.sleep(0.05)
        return server, outcome, took, server.text()

    def test_each_call_is_right_or_says_what_is_wrong(self):
        matrix = list(cells())
        self.assertGreater(len(matrix), 120)
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            results = list(pool.map(self.attempt, matrix))
        for cell, (server, outcome, took, log) in zip(matrix, results):
            with self.subTest(str(cell)):
                self.assertLess(took, BOUND)
                self.assertEqual(outcome.right, cell.fault is None, outcome.error)
                if cell.fault is not None:
                    self.assertRegex(outcome.error, self.expected(cell.fault.says, server))
                    self.assertRegex(log, self.expected(cell.fault.log, server))

    @staticmethod
    def expected(pattern, server):
        addresses = "|".join(re.escape(address) for address in server.addresses)
        return pattern.replace("SERVER", f"(?:{addresses})").replace("CLIENT", r"127\.0\.0\.1:\d+")

    def refused(self, says, name, *flags):
        result = run(name, *flags)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr.decode(), says)

    def test_modes_and_rules_that_cannot_be_are_refused_at_the_start(self):
        certificate, key, ca = (self.programs.path(name) for name in ("own.pem", "own.key", "authority.pem"))
        listener = {"listen": ["tls:127.0.0.1:0"], "listener_tls": {"certificate": certificate, "key": key}}
        clients = [{"names": [OWN], "workers": ["127.0.0.0/8"]}]
        self.refused("listener_tls.client_ca", "sluice-proxy", "--config", self.programs.write("a.json", listener))
        self.refused("without listener_tls", "sluice-proxy", "--config", self.programs.write(
            "b.json", {"listen": ["127.0.0.1:0"], "clients": clients}))  # fmt: skip
        worker = ("sluice-worker", "--listen", "127.0.0.1:0", "--data", self.programs.path("stripes"), "--config",
                  self.programs.path("access.json"))  # fmt: skip
        for mode in ((), ("--tls_certificate", certificate, "--tls_key", key)):
            self.refused("access.*tls.client_ca", *worker, *mode)
        self.assertEqual(run(*worker, *mode, "--tls_client_ca", ca, "--check-config").returncode, 0)

    def test_the_admin_port_and_sluice_link_have_no_tls(self):
        host, port = self.programs.server("worker", Serving("mtls")).addresses[-1].split(":")
        with socket.create_connection((host, int(port)), BOUND) as client, self.assertRaises(OSError) as raised:
            ssl.create_default_context(cafile=self.programs.path("authority.pem")).wrap_socket(client, server_hostname=host)
        self.assertIn("WRONG_VERSION_NUMBER", str(raised.exception))
        # Its socket is in the file system of the host, and the kernel identifies the processes.
        result = run("sluice-link", "--socket", self.programs.path("link"), "--tls_certificate", self.programs.path("own.pem"))
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"--tls_certificate", result.stderr)


class RotationTest(unittest.TestCase):
    """Replaces the certificates of a proxy, its workers and its clients while calls run: over connections that stand, and
    over new ones. The workers end each connection after a second, so the proxy makes new ones all the time."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-rotation-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.files = Mounted(self.folder)
        with open(self.path("input"), "wb") as file:
            file.write(bytes(10000))
        striped = run("sluice-stripe", "--out", self.path("stripes"), "--workers", "2", "--sru", "5000", "--name", FILE,
                      self.path("input"))  # fmt: skip
        self.assertEqual(striped.returncode, 0, striped.stderr)
        self.ends = threading.Event()
        self.errors = []
        self.calls = collections.Counter()

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, name, *flags):
        server = Server(self.folder, name, *flags)
        self.addCleanup(server.close)
        return server

    def start_programs(self):
        own = ("--tls_certificate", self.files.certificate, "--tls_key", self.files.key)
        workers = [self.start("sluice-worker", "--data", self.path("stripes"), "--listen", "127.0.0.1:0",
                              "--max_connection_age", "1s", *own, "--tls_client_ca", self.files.ca) for _ in range(2)]  # fmt: skip
        self.workers = [worker.addresses[0] for worker in workers]
        listener = {"certificate": self.files.certificate, "key": self.files.key, "client_ca": self.files.ca}
        with open(self.path("proxy.json"), "w", encoding="utf-8") as file:
            json.dump({"listen": ["tls:127.0.0.1:0"], "workers": ["127.0.0.0/8"], "worker_header": "x-worker",
                       "listener_tls": listener,
                       "tls": {"certificate": self.files.certificate, "key": self.files.key, "ca": self.files.ca}}, file)  # fmt: skip
        self.server = self.start("sluice-proxy", "--config", self.path("proxy.json"), "--admin", "127.0.0.1:0")
        self.proxy = self.server.addresses[0].removeprefix("tls:")

    def channel(self):
        folder = pathlib.Path(self.files.ca).parent.resolve()  # all three files of one installation
        files = (folder / name for name in ("ca.pem", "own.key", "own.pem"))
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        return grpc.secure_channel(self.proxy, credentials, [("grpc.use_local_subchannel_pool", 1)])

    def call(self, channel, worker):
        request = bytes([10, len(FILE)]) + FILE.encode() + b"\x20\x80\x80\x04"
        answer = channel.unary_unary("/sluice.v1.SruService/ReadManifest")
        answer(request, timeout=2 * BOUND, metadata=[("x-worker", self.workers[worker])])

    def run_calls(self, stands):
        """Calls until the test ends: on one connection, or on a new one for each call."""
        standing = self.channel()
        with standing:
            for number in itertools.count():
                if self.ends.is_set():
                    return
                try:
                    if stands:
                        self.call(standing, number % 2)
                    else:
                        with self.channel() as channel:
                            self.call(channel, number % 2)
                    self.calls[stands] += 1
                except grpc.RpcError as error:
                    self.errors.append(f"{error.code().name}: {error.details()}")

    def await_calls(self):
        before = dict(self.calls)
        wait_until(lambda: self.errors or all(self.calls[kind] > before.get(kind, 0) + 20 for kind in (True, False)),
                   "calls to go on")  # fmt: skip
        self.assertEqual(self.errors, [])

    def test_no_call_fails_while_certificates_and_the_authority_change(self):
        old, new = Authority(self.folder, "old"), Authority(self.folder, "new")
        old_own, new_own = old.issue("old-own"), new.issue("new-own")
        self.files.install([old], old_own)
        self.start_programs()
        servers = (self.proxy, *self.workers)
        threads = [threading.Thread(target=self.run_calls, args=(stands,)) for stands in (True, False)]
        for thread in threads:
            thread.start()
        try:
            self.await_calls()
            self.files.install([old, new], old_own)
            wait_until(lambda: all(handshake(server, old, new_own) for server in servers), "both authorities")
            self.await_calls()
            self.files.install([old, new], new_own)
            wait_until(lambda: all(handshake(server, new, old_own) == serial(new_own) for server in servers),
                       "the new certificates")  # fmt: skip
            self.await_calls()
            # The proxy reads its files when it connects to a worker, at most once a second.
            connections = metric(self.server, RECONNECTS)
            wait_until(lambda: metric(self.server, RECONNECTS) >= connections + 4, "the proxy to show the new certificate")
            self.files.install([new], new_own)
            wait_until(lambda: not any(handshake(server, new, old_own) for server in servers), "the old authority to be gone")
            self.await_calls()
        finally:
            self.ends.set()
            for thread in threads:
                thread.join()
        self.assertEqual(self.errors, [])


if __name__ == "__main__":
    main()
