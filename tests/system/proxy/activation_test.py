#!/usr/bin/env python3
"""Programs take over the listening sockets that a starter passes to them, as systemd does, and restart while stock Python
clients call: activation_test.py BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import collections
import contextlib
import fcntl
import http.client
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

import programs
from call_load import Clients
from programs import METHOD, PATIENCE_S, REQUEST, worker
from stock_grpc import grpc

_CLIENTS = 4
_CALLS = 20  # of each client, before and after each event
_CANCELLED = ("CANCELLED: CANCELLED",)
_HEALTH = "/grpc.health.v1.Health/Check"
_FIRST_PASSED = 3  # of sd_listen_fds(3)
_HIGH = 100
_BUILD = None


def listening(address=("127.0.0.1", 0), family=socket.AF_INET, kind=socket.SOCK_STREAM):
    """A socket as a .socket unit makes it."""
    made = socket.socket(family, kind)
    made.bind(address)
    made.listen(4096)
    return made


def address_of(passed):
    host, port = passed.getsockname()[:2]
    return f"[{host}]:{port}" if passed.family == socket.AF_INET6 else f"{host}:{port}"


@contextlib.contextmanager
def started(argv, ready, passed, stderr=None):
    """Yields a program to which these sockets are passed, by name, once it serves. Kills it at the end if it still runs."""
    # High numbers, which the numbers below do not replace.
    high = [fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH) for made in passed.values()]

    def pass_sockets():
        for i, number in enumerate(high):
            os.dup2(number, _FIRST_PASSED + i, inheritable=True)
        os.environ.update(LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=":".join(passed), LISTEN_PID=str(os.getpid()))

    try:
        preexec_fn = pass_sockets if passed else None
        with programs.started(argv, ready, preexec_fn=preexec_fn, close_fds=False, stderr=stderr) as (process, _):
            yield process
    finally:
        for number in high:
            os.close(number)


class Load(Clients):
    """Half of the clients make a new connection for each call. No call waits for a server."""

    def __init__(self, target, authority="localhost", method=METHOD, request=REQUEST):
        super().__init__(_CLIENTS, _CALLS)
        self._target = target
        self._method, self._request = method, request
        self._options = [("grpc.default_authority", authority), ("grpc.use_local_subchannel_pool", 1)]

    def _run(self, client):
        channel = self._channel()
        while not self._ends:
            if client % 2 == 0:
                channel.close()
                channel = self._channel()
            self._call(client, channel)
        channel.close()

    def _channel(self):
        return grpc.insecure_channel(self._target, options=self._options)

    def _call(self, client, channel):
        try:
            channel.unary_unary(self._method)(self._request, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            self._count_error(f"{error.code().name}: {error.details()}")
            return
        self._count(client)


class Connections(threading.Thread):
    """Makes one connection after the other, without a pause, until it is stopped."""

    def __init__(self):
        super().__init__()
        self._ends = threading.Event()
        self.errors = collections.Counter()
        self.answers = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Must be called before its server ends."""
        self._ends.set()
        self.join()

    def run(self):
        while not self._ends.is_set():
            try:
                self._connect()
                self.answers += 1
            except OSError as error:
                self.errors[type(error).__name__] += 1


class Requests(Connections):
    """Requests a page of an admin server over each connection."""

    def __init__(self, address, path):
        super().__init__()
        self._address, self._path = address, path

    def _connect(self):
        with contextlib.closing(http.client.HTTPConnection(self._address, timeout=PATIENCE_S)) as connection:
            connection.request("GET", self._path)
            connection.getresponse().read()


class Refusals(Connections):
    """Joins a sluice-link with a packet that it refuses."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def _connect(self):
        with joining(self._path) as process:
            refusal_of(process)


@contextlib.contextmanager
def joining(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as process:
        process.settimeout(PATIENCE_S)
        process.connect(path)
        yield process


def refusal_of(process):
    process.send(b"\xff")
    return process.recv(1024)


class ActivationTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._sockets = {name: stack.enter_context(listening()) for name in ("grpc", "admin")}
        self._grpc, self._admin = (address_of(made) for made in self._sockets.values())

    def _program(self, name, *flags, sockets=None, stderr=None):
        ready = self._folder / name
        argv = [_BUILD / f"bin/sluice-{name}", "--listen", self._grpc, "--admin", self._admin, "--log-level", "warning",
                "--ready-file", ready, *flags]  # fmt: skip
        return started(argv, ready, self._sockets if sockets is None else sockets, stderr)

    def _expect_no_gap(self, program, load, page, permitted=()):
        """Ends a program under load before the next one starts, and then ends one while the next one serves. No call may
        fail, except with `permitted` reasons: gRPC's servers cancel a call that arrives when they begin to shut down."""
        with load, page:
            with program() as first:
                load.await_calls()
                first.send_signal(signal.SIGTERM)
                self.assertEqual(first.wait(PATIENCE_S), 0)
                with program() as second:
                    load.await_calls()
                    with program():
                        second.send_signal(signal.SIGTERM)
                        self.assertEqual(second.wait(PATIENCE_S), 0)
                        load.await_calls()
                        load.end()
                        page.end()
                        self.assertLessEqual(set(load.errors), set(permitted))
                        self.assertLessEqual(sum(load.errors.values()), 2 * _CLIENTS)
                        self.assertNotIn("ConnectionRefusedError", page.errors)
                        # The answer to one request at each end may be lost.
                        self.assertLessEqual(sum(page.errors.values()), 2)
                        self.assertGreater(page.answers, 0)

    def test_proxy(self):
        with worker(_BUILD, self._folder) as authority:
            program = lambda: self._program("proxy", "--workers", "127.0.0.0/8")  # noqa: E731
            self._expect_no_gap(program, Load(self._grpc, authority), Requests(self._admin, "/livez"))

    def test_worker(self):
        data = self._folder / "data"
        data.mkdir()
        program = lambda: self._program("worker", "--data", data)  # noqa: E731
        load = Load(self._grpc, method=_HEALTH, request=b"")
        self._expect_no_gap(program, load, Requests(self._admin, "/livez"), _CANCELLED)

    def test_aggregator(self):
        with worker(_BUILD, self._folder) as address:
            program = lambda: self._program("aggregator", "--workers", address)  # noqa: E731
            load = Load(self._grpc, method=_HEALTH, request=b"")
            self._expect_no_gap(program, load, Requests(self._admin, "/livez"), _CANCELLED)

    def test_unix_socket(self):
        path = self._folder / "socket"
        made = listening(str(path), socket.AF_UNIX)
        self.addCleanup(made.close)
        sockets = {"grpc": made}
        self._grpc, self._admin = f"unix:{path}", "127.0.0.1:0"
        with worker(_BUILD, self._folder) as authority:
            program = lambda: self._program("proxy", "--workers", "127.0.0.0/8", sockets=sockets)  # noqa: E731
            with Load(self._grpc, authority) as load, program() as first:
                load.await_calls()
                first.send_signal(signal.SIGTERM)
                self.assertEqual(first.wait(PATIENCE_S), 0)
                with program():
                    load.await_calls()
                    load.end()
                    self.assertEqual(load.errors, {})

    @contextlib.contextmanager
    def _sharer(self, path):
        """Yields a function that returns whether the link of a proxy is leased."""
        ready = self._folder / "sharer"
        argv = [_BUILD / "bin/sluice-proxy", "--listen", f"unix:{self._folder}/sharer.sock", "--workers", "127.0.0.0/8",
                "--buffer", "32kb", "--shared-link-socket", path, "--admin", "127.0.0.1:0", "--log-level", "error",
                "--ready-file", ready]  # fmt: skip
        with programs.started(argv, ready) as (_, (*_, admin)):

            def leased():
                with contextlib.closing(http.client.HTTPConnection(admin, timeout=PATIENCE_S)) as connection:
                    connection.request("GET", "/metrics")
                    return "\nsluice_budget_leased 1\n" in connection.getresponse().read().decode()

            yield leased

    def _await(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def test_link(self):
        path = str(self._folder / "link.sock")
        made = listening(path, socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(made.close)
        ready = self._folder / "link"
        argv = [_BUILD / "bin/sluice-link", "--socket", path, "--buffer", "32kb", "--admin", self._admin, "--log-level",
                "error", "--ready-file", ready]  # fmt: skip
        daemon = lambda: started(argv, ready, {"link": made, "admin": self._sockets["admin"]})  # noqa: E731
        with Refusals(path) as refusals, Requests(self._admin, "/livez") as page, self._sharer(path) as leased:
            with daemon() as first:
                self._await(leased, "a lease of the first daemon")
                first.send_signal(signal.SIGTERM)
                self.assertEqual(first.wait(PATIENCE_S), 0)
            self._await(lambda: not leased(), "the lease to end")
            with joining(path) as between, daemon():
                self.assertIn(b"a packet of 1 bytes", refusal_of(between))
                self._await(leased, "a lease of the second daemon")
                refusals.end()
                page.end()
        for load in (refusals, page):
            self.assertNotIn("ConnectionRefusedError", load.errors)
            self.assertNotIn("FileNotFoundError", load.errors)
            self.assertLessEqual(sum(load.errors.values()), 2)
            self.assertGreater(load.answers, 0)
        self.assertTrue(pathlib.Path(path).exists(), "the socket belongs to its unit")

    def _each_program(self):
        """Yields the names of the programs that serve --listen, and their other flags."""
        data = self._folder / "data"
        data.mkdir()
        yield "proxy", ("--workers", "127.0.0.0/8")
        yield "worker", ("--data", data)
        yield "aggregator", ("--workers", self._grpc, "--connect-timeout", "10ms")

    def _expect_refusal(self, sockets, message):
        for name, flags in self._each_program():
            with self.subTest(name), (self._folder / "log").open("w+") as log:
                with self.assertRaisesRegex(AssertionError, "does not serve"):
                    with self._program(name, *flags, sockets=sockets, stderr=log):
                        pass
                self.assertIn(message, (self._folder / "log").read_text())

    def test_a_socket_that_is_not_in_the_config_is_refused(self):
        with listening() as other:
            message = f"{address_of(other)} (more) passed by the starter of this process, but not in the config, which has "
            message += f"listen {self._grpc}, admin {self._admin};"
            self._expect_refusal({**self._sockets, "more": other}, message)

    def test_a_socket_of_all_addresses_does_not_serve_one_of_them(self):
        with listening(("::", 0), socket.AF_INET6) as everywhere:
            self._grpc = f"127.0.0.1:{everywhere.getsockname()[1]}"  # to bind it fails
            message = f"{address_of(everywhere)} (grpc) passed by the starter of this process, but not in the config, "
            message += f"which has listen {self._grpc}, admin {self._admin};"
            self._expect_refusal({**self._sockets, "grpc": everywhere}, message)

    def test_a_socket_of_all_addresses_serves_each_way_to_write_them(self):
        sockets = {}
        for name in ("grpc", "admin"):
            sockets[name] = listening(("::", 0), socket.AF_INET6)
            self.addCleanup(sockets[name].close)
        ports = [made.getsockname()[1] for made in sockets.values()]
        for name, flags in self._each_program():
            for host in ("0.0.0.0", "*", "", "[::]"):
                self._grpc, self._admin = (f"{host}:{port}" for port in ports)
                with self.subTest(name, host=host), self._program(name, *flags, sockets=sockets):
                    for family in ("127.0.0.1", "::1"):
                        page = http.client.HTTPConnection(family, ports[1], timeout=PATIENCE_S)
                        with contextlib.closing(page):
                            page.request("GET", "/livez")
                            self.assertEqual(page.getresponse().status, 200)
                        socket.create_connection((family, ports[0]), PATIENCE_S).close()


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
