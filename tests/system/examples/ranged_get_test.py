#!/usr/bin/env python3
"""Tests examples/ranged-get against HTTP servers in this process: ranged_get_test.py PROGRAM"""

import contextlib
import hashlib
import http.server
import pathlib
import random
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

_PATIENCE = 60  # seconds that a test waits for an expected event
_SERVERS = 8
_OBJECT = random.Random(1).randbytes(1_000_003)
_PROGRAM = ""


class _Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        begin, end = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        found = self.path == "/object"
        body = _OBJECT[begin : end + 1] if found else b"nothing"
        self.send_response(206 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {begin}-{end}/{len(_OBJECT)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(tls=None):
    """Yields the addresses of the servers."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(_SERVERS):
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Ranges))
            server.daemon_threads = True
            if tls:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            stack.callback(server.shutdown)
            addresses.append(f"127.0.0.1:{server.server_address[1]}")
        yield addresses


def run(*arguments):
    return subprocess.run([_PROGRAM, *arguments], capture_output=True, text=True, timeout=_PATIENCE, check=False)


class RangedGetTest(unittest.TestCase):
    def _check(self, finished):
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        checksum = hashlib.sha256(_OBJECT).hexdigest()
        self.assertRegex(
            finished.stdout, rf"\A{checksum}  /object\n1000003 bytes from 8 servers, 3 times: [0-9.]+ Mbit/s, p50 .*\n\Z"
        )

    def test_reads_the_object_over_streams_and_over_sockets(self):
        with serving() as addresses:
            for mode in ([], ["--direct"], ["--rate", "100", "--buffer", "32"]):
                self._check(run(*mode, "--repeat", "3", "/object", *addresses))

    def test_reads_the_object_by_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                 "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                check=True, capture_output=True,
            )  # fmt: skip
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(cert, key)
            with serving(tls) as addresses:
                for mode in ([], ["--direct"]):
                    self._check(run(*mode, "--ca", cert, "--repeat", "3", "/object", *addresses))

    def test_names_what_failed(self):
        with serving() as addresses:
            missing = run("/nothing", *addresses)
            self.assertEqual((missing.returncode, missing.stderr), (1, f"ranged_get: {addresses[0]}: no range: 404\n"))
        refused = run("/object", *addresses)
        self.assertEqual((refused.returncode, refused.stderr), (1, "ranged_get: Connection refused\n"))


if __name__ == "__main__":
    _PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
