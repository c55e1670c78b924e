#!/usr/bin/env python3
"""Tests that a route of sluice-proxy takes the :authority values that gRPC's own servers take: authority_test.py BUILD.
Exits with code 77 and prints the reason if grpcio is missing."""

import concurrent.futures
import contextlib
import json
import pathlib
import sys
import tempfile
import unittest

from programs import PATIENCE_S, started
from stock_grpc import grpc

_BUILD = None
_METHOD = "/service/Method"
# Older clients of etcd send such values.
_AUTHORITIES = ["http://10.0.0.1:2379", "/run/etcd", "unix:/run/etcd", "#initially=[http://10.0.0.1:2379]"]


@contextlib.contextmanager
def _server():
    """Yields the port of a server of grpcio."""
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("service", {"Method": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def _call(address, authority):
    options = [("grpc.default_authority", authority), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options) as channel:
        return channel.unary_unary(_METHOD)(b"request", timeout=PATIENCE_S)


class AuthorityTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._worker = f"127.0.0.1:{stack.enter_context(_server())}"
        config = folder / "proxy.json"
        config.write_text(json.dumps({
            "listen": ["127.0.0.1:0"], "routes": [{"listen": "127.0.0.1:0", "workers": self._worker}],
            "workers": ["127.0.0.0/8"], "log_level": "error",
        }))  # fmt: skip
        argv = [_BUILD / "bin/sluice-proxy", "--config", config, "--ready-file", folder / "proxy"]
        _, (self._listener, self._route) = stack.enter_context(started(argv, folder / "proxy"))

    def test_a_route_takes_what_the_server_takes(self):
        for authority in _AUTHORITIES:
            for way, address in (("direct", self._worker), ("route", self._route)):
                with self.subTest(authority=authority, way=way):
                    self.assertEqual(_call(address, authority), b"request")

    def test_it_names_no_worker_elsewhere(self):
        for authority in _AUTHORITIES:
            with self.subTest(authority=authority), self.assertRaises(grpc.RpcError) as raised:
                _call(self._listener, authority)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("names no worker", raised.exception.details())


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
