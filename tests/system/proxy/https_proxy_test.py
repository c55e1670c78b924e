#!/usr/bin/env python3
"""Tests clients that speak TLS to the proxy and ask for a tunnel within it, as with a proxy URL https://:
https_proxy_test.py BUILD. Exits with code 77 and prints the reason if curl is missing."""

import contextlib
import http.server
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))

from certificates import Authority
from programs import PATIENCE_S, started

_BUILD = None
_PAGE = b"x" * 1_000_000


class _Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(_PAGE)))
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def _web_server(context=None):
    """Yields the port of a server on loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class HttpsProxyTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._servers = Authority(self._folder, "servers")
        self._clients = Authority(self._folder, "clients")
        self._identity = self._clients.issue("client")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._servers.issue("worker"))
        self._plain = stack.enter_context(_web_server())
        self._tls = stack.enter_context(_web_server(context))
        certificate, key = self._servers.issue("proxy")
        config = self._folder / "proxy.json"
        config.write_text(json.dumps({
            "listen": ["tls:127.0.0.1:0"], "workers": ["127.0.0.0/8", "localhost"], "log_level": "warning",
            "listener_tls": {"certificate": certificate, "key": key, "client_ca": self._clients.file},
        }))  # fmt: skip
        argv = [_BUILD / "bin/sluice-proxy", "--config", config, "--ready-file", self._folder / "ready"]
        _, (listener,) = stack.enter_context(started(argv, self._folder / "ready"))
        self._port = int(listener.rpartition(":")[2])

    def _curl(self, url, *options, identity=None):
        certificate, key = identity or self._identity
        argv = ["curl", "--silent", "--show-error", "--max-time", str(PATIENCE_S), "--noproxy", "",
                "--proxy", f"https://localhost:{self._port}", "--proxy-cacert", self._servers.file,
                "--proxy-cert", certificate, "--proxy-key", key, "--cacert", self._servers.file, *options, url]
        return subprocess.run(argv, capture_output=True, check=False)

    def _connect(self, alpn):
        context = ssl.create_default_context(cafile=self._servers.file)
        context.load_cert_chain(*self._identity)
        context.set_alpn_protocols(alpn)
        raw = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        return context.wrap_socket(raw, server_hostname="localhost")

    def test_curl_fetches_over_tls_within_tls(self):
        result = self._curl(f"https://localhost:{self._tls}/")
        self.assertEqual((result.returncode, len(result.stdout)), (0, len(_PAGE)), result.stderr)

    def test_curl_fetches_in_the_clear_within_tls(self):
        result = self._curl(f"http://localhost:{self._plain}/", "--proxytunnel")
        self.assertEqual((result.returncode, len(result.stdout)), (0, len(_PAGE)), result.stderr)

    def test_the_status_of_connect_comes_through(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        result = self._curl(f"https://localhost:{port}/")
        self.assertEqual(result.returncode, 56, result.stderr)
        self.assertIn(b"502", result.stderr)

    def test_a_client_without_an_accepted_certificate_is_refused(self):
        result = self._curl(f"https://localhost:{self._tls}/", identity=self._servers.issue("other"))
        self.assertNotEqual(result.returncode, 0)

    # Go offers h2 to a proxy, too, and then sends CONNECT by HTTP/1.1.
    def test_what_is_offered_by_alpn_does_not_decide(self):
        for alpn in ([], ["http/1.1"], ["h2", "http/1.1"]):
            with self.subTest(alpn), self._connect(alpn) as client:
                client.sendall(f"CONNECT localhost:{self._plain} HTTP/1.1\r\n\r\n".encode())
                self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                self.assertTrue(client.makefile("rb").read().endswith(_PAGE))

    def test_socks5_works_within_tls(self):
        with self._connect([]) as client:
            client.sendall(b"\x05\x01\x00")
            self.assertEqual(client.recv(2), b"\x05\x00")
            client.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + self._plain.to_bytes(2, "big"))
            self.assertEqual(client.recv(10)[1], 0)
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            self.assertTrue(client.makefile("rb").read().endswith(_PAGE))


if __name__ == "__main__":
    if shutil.which("curl") is None:
        print("SKIPPED: missing tool: curl; install the packages of tests/install-packages.sh network")
        sys.exit(77)
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
