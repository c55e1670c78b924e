#!/usr/bin/env python3
"""What sluice-proxy refuses, or does not schedule, is in its log, and stock Python clients show the reason of a refusal:
refusals_test.py BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import contextlib
import os
import pathlib
import re
import socket
import sys
import tempfile
import time
import unittest
import unittest.mock

from programs import METHOD, PATIENCE_S, REQUEST, started, worker
from stock_grpc import grpc

_BUILD = None
_LOOPBACK = "is a loopback address; add a pattern to workers that permits loopback alone, such as 127.0.0.0/8"


class RefusalsTest(unittest.TestCase):
    def setUp(self):
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self._folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    def _start_proxy(self, *flags):
        ready = self._folder / "proxy"
        log = self._stack.enter_context(open(self._folder / "log", "w", encoding="utf-8"))
        argv = [_BUILD / "bin/sluice-proxy", "--listen", "127.0.0.1:0", "--ready-file", ready, *flags]
        _, (address,) = self._stack.enter_context(started(argv, ready, stderr=log))
        self._stack.enter_context(unittest.mock.patch.dict(os.environ, http_proxy=f"http://{address}", no_proxy=""))
        return address

    def _warnings(self, count):
        """Returns the warnings, once there are as many."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = re.findall(r"level=warning (.*)", (self._folder / "log").read_text(encoding="utf-8"))
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def test_a_client_shows_that_it_was_refused_and_the_log_has_the_reason_once_a_target(self):
        self._start_proxy()
        targets = ["127.0.0.1:7001", "127.0.0.1:7002"]
        for _ in range(5):
            for target in targets:
                with grpc.insecure_channel(target) as channel, self.assertRaises(grpc.RpcError) as raised:
                    channel.unary_unary(METHOD)(REQUEST, timeout=PATIENCE_S)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
                self.assertIn("HTTP proxy returned response code 403", raised.exception.details())
        warnings = self._warnings(2)
        self.assertEqual(len(warnings), 2, warnings)
        for target, line in zip(targets, warnings):
            self.assertRegex(line, rf'^msg="a client was refused" client=127.0.0.1:\d+ target={target} reason="\\"{target}'
                                   rf'\\" {re.escape(_LOOPBACK)}" unlogged=0$')  # fmt: skip

    def test_a_client_of_tls_that_is_not_scheduled_is_in_the_log_once_a_worker(self):
        self._start_proxy("--workers", "127.0.0.0/8", "--tunnels-scheduled=false")
        with worker(_BUILD, self._folder) as address:
            for _ in range(3):
                credentials = grpc.ssl_channel_credentials()
                with grpc.secure_channel(address, credentials) as channel, self.assertRaises(grpc.RpcError):
                    channel.unary_unary(METHOD)(REQUEST, timeout=PATIENCE_S)
        (line,) = self._warnings(1)
        self.assertRegex(line, rf'^msg="a tunnel to a worker is not scheduled" client=\S+ target={address} carries=TLS ')

    def test_plaintext_grpc_to_a_host_that_is_not_a_worker_is_in_the_log(self):
        proxy = self._start_proxy("--workers", "10.255.255.255/32", "--tunnels-to-others=true")
        with socket.create_server(("", 0)) as server:
            target = f"{_own_address()}:{server.getsockname()[1]}"
            with socket.create_connection(("127.0.0.1", int(proxy.rpartition(":")[2]))) as client:
                client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
                self.assertIn(b" 200 ", client.recv(1000))
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                (line,) = self._warnings(1)
        self.assertRegex(line, rf'^msg="a tunnel to a host that is not a worker is not scheduled" client=\S+ target={target} '
                               r'carries="plaintext HTTP/2" reason=".*add a pattern for it to workers"')  # fmt: skip


def _own_address():
    """An address of this host that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
