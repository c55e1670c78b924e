#!/usr/bin/env python3
"""Tests redirected connections: redirect_test.py BUILD

Runs sluice-proxy in a network namespace of its own, and leads connections to it by nftables, as deploy/components/proxy-redirect does.
Exits with code 77 and prints the reason if the machine permits no namespace, or lacks nft."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import unittest

from programs import PATIENCE_S, started

_BUILD = None
_MARKER = "SLUICE_REDIRECT_TEST"
_PORT = 7000
_OWN_PORTS = (20000, 20999)  # the rule of most tests redirects connections that come from these
_HOSTS = ("10.9.0.1", "fd99::1")
_RULES = pathlib.Path(__file__).resolve().parents[3] / "deploy/components/proxy-redirect/redirect.nft"

_FROM_OWN_PORTS = f"""
table inet t {{
  chain o {{
    type nat hook output priority -100
    tcp sport {_OWN_PORTS[0]}-{_OWN_PORTS[1]} tcp dport {_PORT} redirect to :7401
  }}
}}
"""
_WITHOUT_EXEMPTION = f"""
table inet t {{
  chain o {{
    type nat hook output priority -100
    tcp dport {_PORT} redirect to :7401
  }}
}}
"""


def _run(*argv, text=None):
    return subprocess.run(argv, input=text, text=True, check=True, capture_output=True, timeout=PATIENCE_S).stdout


def _serve():
    """Answers each line of a client with the line in brackets, and at its end with "bye"."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(b"[" + line.strip() + b"]\n")
            self.wfile.write(b"bye\n")

    class Server(socketserver.ThreadingTCPServer):
        address_family = socket.AF_INET6
        daemon_threads = True

    print("up", flush=True)  # its namespace is there
    sys.stdin.readline()  # the network is there, too
    with Server(("::", _PORT), Handler) as server:  # both families
        print("serves", flush=True)
        server.serve_forever()


@contextlib.contextmanager
def _worker_host():
    """Another host, on which _serve runs, and the network between."""
    command = ["unshare", "-n", sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            worker.stdout.readline()
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "link", "add", "port", "type", "veth", "peer", "name", "port", "netns", str(worker.pid))
            inside = ["nsenter", "-n", "-t", str(worker.pid)]
            for prefix, own in (([], 2), (inside, 1)):
                _run(*prefix, "ip", "link", "set", "port", "up")
                _run(*prefix, "ip", "address", "add", f"10.9.0.{own}/24", "dev", "port")
                _run(*prefix, "ip", "address", "add", f"fd99::{own}/64", "dev", "port", "nodad")
            worker.stdin.write("\n")
            worker.stdin.flush()
            worker.stdout.readline()
            yield
        finally:
            worker.kill()


class RedirectTest(unittest.TestCase):
    _next_port = _OWN_PORTS[0]

    def setUp(self):
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self._folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._folder.chmod(0o777)

    def _start(self, rules, listen=("127.0.0.1", "[::1]"), user=None, workers=("10.0.0.0/8", "fd00::/8")):
        _run("nft", "flush", "ruleset")
        _run("nft", "-f", "-", text=rules)
        config = self._folder / "proxy.json"
        config.write_text(json.dumps({
            "listen": [f"redirected:{host}:7401" for host in listen], "workers": workers,
        }))  # fmt: skip
        argv = [_BUILD / "bin/sluice-proxy", "--config", config, "--ready-file", self._folder / "ready"]
        if user is not None:
            argv = ["setpriv", f"--reuid={user}", "--clear-groups", *argv]
        self._log = self._stack.enter_context((self._folder / "log").open("w+"))
        self._process, _ = self._stack.enter_context(started(argv, self._folder / "ready", stderr=self._log))

    def _logged(self):
        return (self._folder / "log").read_text()

    def _connect(self, host, port=_PORT, from_own_port=True):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        client = self._stack.enter_context(socket.socket(family))
        client.settimeout(PATIENCE_S)
        if from_own_port:
            client.bind(("", self._next_port))
            RedirectTest._next_port += 1
        client.connect((host, port))
        return client

    def _expect_answers(self, host, **options):
        client = self._connect(host, **options)
        self.assertEqual(client.getpeername()[:2], (host, _PORT), "the client does not see the redirect")
        client.sendall(b"one\n")
        self.assertEqual(client.recv(100), b"[one]\n")
        client.sendall(b"two\n")
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(client.makefile("rb").read(), b"[two]\nbye\n")

    def _expect_bye(self):
        """A client that sends nothing, and shuts down its sending side at once."""
        client = self._connect(_HOSTS[0])
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(client.makefile("rb").read(), b"bye\n")

    def test_a_client_may_only_read(self):
        self._start(_FROM_OWN_PORTS)
        self._expect_bye()

    def test_a_client_of_another_host_may_only_read(self):
        self._start(_FROM_OWN_PORTS, workers=["192.0.2.0/24"])
        self._expect_bye()

    def test_connections_reach_their_destination_through_the_proxy(self):
        self._start(_FROM_OWN_PORTS)
        for host in _HOSTS:
            with self.subTest(host):
                self._expect_answers(host)
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        with self.assertRaises(ConnectionRefusedError):
            self._connect(_HOSTS[0])  # which shows that the proxy carried them

    def test_what_nobody_redirected_is_refused(self):
        self._start(_FROM_OWN_PORTS)
        for host in ("127.0.0.1", "::1"):
            client = self._connect(host, port=7401, from_own_port=False)
            self.assertEqual(client.recv(1), b"")
        self.assertIn("no rule has redirected this connection here", self._logged())

    def _expect_no_loop(self, **options):
        """Rules that lead the proxy to itself end each of 40 connections, and the log has the reason."""
        self._start(_WITHOUT_EXEMPTION, **options)
        for host in _HOSTS:
            for _ in range(20):
                with self.assertRaises(ConnectionResetError):
                    self._connect(host, from_own_port=False).recv(1)
            self.assertRegex(self._logged(), rf"{re.escape(host)}.*exempt the proxy's user from the rule")
        self.assertLess(len(list(pathlib.Path(f"/proc/{self._process.pid}/fd").iterdir())), 40, "descriptors are free")

    def test_a_rule_that_leads_the_proxy_to_itself_makes_no_loop(self):
        self._expect_no_loop()

    def test_a_rule_makes_no_loop_to_a_host_that_is_no_worker(self):
        self._expect_no_loop(workers=["192.0.2.0/24"])

    def test_the_rules_of_deploy_exempt_the_proxy(self):
        if os.environ[_MARKER] != "root":
            _run("nft", "--check", "-f", str(_RULES))  # the namespace has no other user to run the proxy
            return
        self._start(_RULES.read_text(), listen=("[::]",), user=65532)
        _run("nft", "-f", str(_RULES))  # again
        for host in _HOSTS:
            self._expect_answers(host, from_own_port=False)
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        with self.assertRaises(ConnectionRefusedError):
            self._connect(_HOSTS[0], from_own_port=False)


def _enter():
    """Starts this test again in a network namespace."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in ("nft", "ip", "unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    if missing:
        print(f"SKIPPED: missing tools: {', '.join(missing)}; install the packages of tests/install-packages.sh network")
        sys.exit(77)
    for kind, command in (("root", ["unshare", "-n"]), ("user", ["unshare", "-rn"])):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            os.environ[_MARKER] = kind
            os.execvp("unshare", [*command, sys.executable, *sys.argv])
    print("SKIPPED: this machine permits no network namespaces")
    sys.exit(77)


if __name__ == "__main__":
    if _MARKER not in os.environ:
        _enter()
    if sys.argv[1] == "--serve":
        _serve()
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    with _worker_host():
        unittest.main(verbosity=2)
