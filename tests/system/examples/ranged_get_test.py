#!/usr/bin/env python3
"""Tests examples/ranged-get against HTTP servers in this process: ranged_get_test.py PROGRAM"""

import contextlib
import dataclasses
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


@dataclasses.dataclass
class _Version:
    """What a server has, and how it answers for it."""

    body: bytes = dataclasses.field(default=_OBJECT, repr=False)
    validators: tuple = (("ETag", '"one"'),)
    checks: bool = True  # whether it reads preconditions
    shift: int = 0  # of its ranges


_ONE, _DATE = _Version(), "Tue, 01 Dec 2026 08:00:00 GMT"


class _Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        begin, end = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        version = self.server.version
        preconditions = {"ETag": "If-Match", "Last-Modified": "If-Unmodified-Since"}
        wanted = [(self.headers[preconditions[name]], value) for name, value in version.validators]
        self.server.preconditions.append([asked for asked, _ in wanted if asked])
        if version.checks and any(asked not in (None, value) for asked, value in wanted):
            return self._respond(412)
        if self.path != "/object":
            return self._respond(404, b"nothing")
        begin, end = (at + version.shift if at else 0 for at in (begin, end))
        content_range = ("Content-Range", f"bytes {begin}-{end}/{len(version.body)}")
        return self._respond(206, version.body[begin : end + 1], content_range, *version.validators)

    def _respond(self, status, body=b"", *headers):
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(tls=None, version=_ONE, last=None, preconditions=None):
    """Yields the addresses of the servers. `last`: the version of the last one. Adds the preconditions of all requests."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for number in range(_SERVERS):
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Ranges))
            server.daemon_threads = True
            server.version = last if last and number == _SERVERS - 1 else version
            server.preconditions = [] if preconditions is None else preconditions
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

    def test_ranges_are_of_one_version(self):
        for validators, precondition in (
            ((("ETag", '"one"'),), '"one"'),
            ((("ETag", 'W/"one"'), ("Last-Modified", _DATE)), _DATE),
            ((("Last-Modified", _DATE),), _DATE),
        ):
            seen = []
            with self.subTest(validators), serving(version=_Version(validators=validators), preconditions=seen) as addresses:
                self._check(run("--repeat", "3", "/object", *addresses))
                self.assertEqual(sorted(seen), [[]] + [[precondition]] * 3 * _SERVERS)

    def test_another_version_is_an_error(self):
        body = bytes(reversed(_OBJECT))
        two, late = (("ETag", '"two"'),), (("Last-Modified", _DATE.replace("08", "09")),)
        dated = _Version(validators=(("Last-Modified", _DATE),))
        for first, last in (
            (_ONE, _Version(body, two)),
            (_ONE, _Version(body, two, checks=False)),
            (_ONE, _Version(body, validators=())),
            (dated, _Version(body, late)),
            (dated, _Version(body, late, checks=False)),
        ):
            with self.subTest(last), serving(version=first, last=last) as addresses:
                read = run("/object", *addresses)
                error = f"ranged_get: {addresses[-1]}: a different version of the object\n"
                self.assertEqual((read.returncode, read.stderr, read.stdout), (1, error, ""))

    def test_another_range_is_an_error(self):
        for last in (_Version(shift=1), _Version(shift=-1), _Version(body=_OBJECT[:-1]), _Version(body=_OBJECT + b"x")):
            with self.subTest(shift=last.shift), serving(last=last) as addresses:
                read = run("/object", *addresses)
                self.assertEqual((read.returncode, read.stdout), (1, ""))
                self.assertIn(f"{addresses[-1]}: not the range that was asked for, 875002-1000002/1000003", read.stderr)

    def test_an_object_without_a_version_is_an_error(self):
        for validators in ((), (("ETag", 'W/"one"'),)):
            with self.subTest(validators), serving(version=_Version(validators=validators)) as addresses:
                read = run("/object", *addresses)
                self.assertEqual(read.returncode, 1)
                self.assertIn(f"{addresses[0]}: the object has no strong ETag and no Last-Modified", read.stderr)

    def test_names_what_failed(self):
        with serving() as addresses:
            missing = run("/nothing", *addresses)
            self.assertEqual((missing.returncode, missing.stderr), (1, f"ranged_get: {addresses[0]}: no range: 404\n"))
        refused = run("/object", *addresses)
        self.assertEqual((refused.returncode, refused.stderr), (1, "ranged_get: Connection refused\n"))


if __name__ == "__main__":
    _PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
