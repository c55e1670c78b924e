#!/usr/bin/env python3
"""Tests a stock Python client with a listener of sluice-proxy that requires client certificates: stock_tls_test.py
BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import contextlib
import json
import pathlib
import sys
import tempfile
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))

from certificates import Authority
from programs import METHOD, PATIENCE_S, REQUEST, started, worker
from stock_grpc import grpc

_BUILD = None


class StockTlsTest(unittest.TestCase):
    """gRPC's core accepts only authorities that the server's certificate names. Therefore these clients name their
    workers in a header, or call a route."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._worker = stack.enter_context(worker(_BUILD, self._folder))
        self._servers = Authority(self._folder, "servers")
        self._clients = Authority(self._folder, "clients")
        certificate, key = self._servers.issue("proxy")
        config = self._folder / "proxy.json"
        config.write_text(json.dumps({
            "listen": ["tls:127.0.0.1:0"],
            "routes": [{"listen": "tls:127.0.0.1:0", "workers": self._worker}],
            "listener_tls": {"certificate": certificate, "key": key, "client_ca": self._clients.file,
                             "client_names": ["aggregator.search"]},
            "worker_header": "x-worker", "workers": ["127.0.0.0/8"], "log_level": "warning",
        }))  # fmt: skip
        ready = self._folder / "proxy"
        argv = [_BUILD / "bin/sluice-proxy", "--config", config, "--ready-file", ready]
        _, listeners = stack.enter_context(started(argv, ready))
        self._listener, self._route = (listener.removeprefix("tls:") for listener in listeners)

    def _call(self, target, identity, metadata=()):
        certificate, key = (pathlib.Path(file).read_bytes() for file in identity) if identity else (None, None)
        authorities = pathlib.Path(self._servers.file).read_bytes()
        credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
        with grpc.secure_channel(target, credentials) as channel:
            answer = channel.unary_unary(METHOD)
            return answer(REQUEST, timeout=PATIENCE_S, metadata=metadata)

    def test_a_client_with_a_certificate_names_its_worker_in_a_header(self):
        identity = self._clients.issue("aggregator", hosts="DNS:aggregator.search")
        answer = self._call(self._listener, identity, [("x-worker", self._worker)])
        self.assertGreaterEqual(len(answer), 20000)

    def test_a_client_with_a_certificate_calls_a_route(self):
        identity = self._clients.issue("aggregator", hosts="DNS:aggregator.search")
        self.assertGreaterEqual(len(self._call(self._route, identity)), 20000)

    def test_others_are_refused(self):
        for name, identity in (
            ("without a certificate", None),
            ("of another name", self._clients.issue("other", hosts="DNS:other.search")),
            ("signed by the authority of servers", self._servers.issue("aggregator", hosts="DNS:aggregator.search")),
        ):
            with self.subTest(name), self.assertRaises(grpc.RpcError) as refused:
                self._call(self._listener, identity, [("x-worker", self._worker)])
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)


class WorkerTlsTest(unittest.TestCase):
    """A stock server whose certificate has no name but a SPIFFE ID, and which requires a certificate of the proxy."""

    def setUp(self):
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self._folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._authority = Authority(self._folder, "authority")
        certificate, key = (pathlib.Path(file).read_bytes() for file in self._authority.issue("worker", hosts="URI:spiffe://example/worker"))
        server = grpc.server(futures.ThreadPoolExecutor(2))
        _, service, method = METHOD.split("/")
        answer = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: answer})])
        trusted = pathlib.Path(self._authority.file).read_bytes()
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)], trusted, True))
        server.start()
        self._stack.callback(lambda: server.stop(None).wait())
        self._worker = f"127.0.0.1:{port}"

    def _call(self, name):
        certificate, key = self._authority.issue("proxy", hosts="URI:spiffe://example/proxy")
        config = self._folder / "proxy.json"
        config.write_text(json.dumps({
            "listen": [f"unix:{self._folder}/proxy.sock"], "worker_header": "x-worker", "workers": ["127.0.0.0/8"], "log_level": "warning",
            "tls": {"certificate": certificate, "key": key, "ca": self._authority.file, "server_name": name},
        }))  # fmt: skip
        ready = self._folder / "proxy"
        _, (listener,) = self._stack.enter_context(started([_BUILD / "bin/sluice-proxy", "--config", config, "--ready-file", ready], ready))
        with grpc.insecure_channel(listener) as channel:
            return channel.unary_unary(METHOD)(REQUEST, timeout=PATIENCE_S, metadata=[("x-worker", self._worker)])

    def test_the_proxy_calls_a_worker_by_its_spiffe_id(self):
        self.assertEqual(self._call("spiffe://example/worker"), REQUEST)

    def test_a_worker_with_another_id_is_refused(self):
        with self.assertRaises(grpc.RpcError) as refused:
            self._call("spiffe://example/other")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("spiffe://example/other", refused.exception.details())


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
