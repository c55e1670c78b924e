"""Tests mTLS on every hop of a tree: sluice-cat, an aggregator, a mid-level aggregator, a worker. Each case has one
fault on one hop. Another test replaces certificates while a load reads through all hops.

Run as: sluice_tls_tree_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import concurrent.futures
import dataclasses
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from certificates import Authority  # noqa: E402
from serving import PATIENCE, Server, main, metric, program, run, wait_until  # noqa: E402

CONNECTED = "sluice_workers_connected"
READ = 'sluice_blocks_total{outcome="complete"}'


@dataclasses.dataclass(frozen=True)
class Tls:
    """The TLS settings of one program. Certificates and authorities are names of files; None omits the flag."""

    identity: str = "own"
    client_ca: str = "authority"  # authority of the program's clients
    ca: str = "authority"  # authority of the program's servers
    server_name: str = None


CAT, TOP, MID, WORKER = range(4)  # each program calls the next one
HOPS = {"cat to aggregator": CAT, "aggregator to mid-level": TOP, "mid-level to worker": MID}


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault of the client or the server of a hop, and the expected error. ADDRESS stands for the server's address."""

    name: str
    says: str
    client: dict = dataclasses.field(default_factory=dict)
    server: dict = dataclasses.field(default_factory=dict)
    hops: tuple = tuple(HOPS)


ASKED = "ADDRESS ended the connection after it asked for a certificate of this client; this client "
CASES = (
    Case("expired", r"the certificate of ADDRESS expired at 20\d\d-", server={"identity": "expired"}),
    Case("wrong authority", 'the certificate of ADDRESS is signed by an unknown authority, "authority"',
         client={"ca": "stranger"}),
    Case("wrong name", "the certificate of ADDRESS is for localhost, 127.0.0.1, not other.example",
         client={"server_name": "other.example"}),
    Case("no certificate of the client", ASKED + "has none", client={"identity": None}),
    Case("client of a wrong authority", ASKED + r'showed "own" of the authority "authority", valid until 20\d\d-',
         server={"client_ca": "stranger"}),
    # Only on this hop: with the same certificate, the hop above would fail first.
    Case("client expired", ASKED + r'showed "expired" of the authority "authority", which expired at 20\d\d-',
         client={"identity": "expired"}, hops=("cat to aggregator",)),
    Case("plaintext to a port of TLS", "ADDRESS ended the connection before HTTP/2 began; it may expect TLS",
         client={"ca": None}),
    Case("TLS to a port of plaintext", "ADDRESS: the other side does not speak TLS", server={"identity": None}),
)  # fmt: skip


class MtlsTree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-mtls-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.data = random.Random(1).randbytes(1234567)
        with open(self.path("input"), "wb") as file:
            file.write(self.data)
        result = run("sluice-stripe", "--out", self.path("stripes"), "--workers", "1x2", "--sru", "5000", "--name", "data",
                     "--replicas", "1x2", self.path("input"))  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self, name, *flags):
        server = Server(self.folder, name, *flags)
        self.addCleanup(server.close)
        return server

    def start_worker(self, listen, *flags):
        return self.start("sluice-worker", "--data", self.path("stripes", "mla-0000"), "--listen", listen, *flags)

    def start_aggregator(self, below, *flags, listen="127.0.0.1:0"):
        # Do not wait for the workers: some cases make them unreachable.
        return self.start("sluice-aggregator", "--listen", listen, "--admin", "127.0.0.1:0", "--connect_timeout", "200ms",
                          "--workers", ",".join(below), *flags)  # fmt: skip

    def cat(self, aggregator, *flags):
        return run("sluice-cat", "--aggregator", aggregator.addresses[0], "--timeout", "30s", *flags, "data")


class HopsTest(MtlsTree):
    def setUp(self):
        super().setUp()
        authority = Authority(self.folder, "authority")
        authority.issue("own")
        authority.issue("expired", days=-1)
        Authority(self.folder, "stranger")
        self.servers = {}

    def flags(self, tls, serves, calls):
        flags = []
        if tls.identity and (serves or tls.ca):
            flags += ["--tls_certificate", self.path(f"{tls.identity}.pem"), "--tls_key", self.path(f"{tls.identity}.key")]
        if tls.identity and tls.client_ca and serves:
            flags += ["--tls_client_ca", self.path(f"{tls.client_ca}.pem")]
        if tls.ca and calls:
            flags += ["--tls_ca", self.path(f"{tls.ca}.pem")]
            flags += ["--tls_server_name", tls.server_name] if tls.server_name else []
        return flags

    def server(self, level, settings):
        """Returns the server of a level, over the levels below it. Cases with equal settings for all these levels
        share it."""
        key = (level, *settings[level:])
        if key not in self.servers:
            flags = self.flags(settings[level], True, level != WORKER)
            if level == WORKER:
                # One of the two listeners is a Unix socket, for which a certificate must name localhost.
                listen = "127.0.0.1:0,unix:" + self.path(f"worker-{len(self.servers)}")
                self.servers[key] = self.start_worker(listen, *flags)
            else:
                below = self.server(level + 1, settings).addresses
                below = below[:1] if level == TOP else below
                flags += ["--mid_level"] if level == MID else []
                self.servers[key] = self.start_aggregator(below, *flags)
        return self.servers[key]

    def read(self, settings):
        return self.cat(self.server(TOP, settings), *self.flags(settings[CAT], False, True))

    def test_with_the_right_certificates_the_bytes_are_right(self):
        result = self.read([Tls()] * 4)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.data)

    def test_whatever_is_wrong_on_a_hop_is_named_before_the_deadline(self):
        trials = [(case, hop, self.settings(case, HOPS[hop])) for case in CASES for hop in case.hops]
        for _, _, settings in trials:
            self.server(TOP, settings)
        # Run the reads in parallel, because each retries for a second or two.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(self.read, [settings for _, _, settings in trials]))
        for (case, hop, settings), result in zip(trials, results):
            with self.subTest(case.name, hop=hop):
                # The file's name decides which of the two workers receives the first request, and the error names that
                # worker.
                addresses = "|".join(re.escape(address) for address in self.server(HOPS[hop] + 1, settings).addresses)
                self.expect_error(result, case.says.replace("ADDRESS", f"(?:{addresses})"))

    def expect_error(self, result, says):
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        error = result.stderr.decode()
        self.assertRegex(error, says)
        self.assertEqual(error.count("\n"), 1, error)

    @staticmethod
    def settings(case, client):
        """Returns the settings of all programs for a fault between `client` and the next program."""
        settings = [Tls()] * 4
        settings[client] = dataclasses.replace(settings[client], **case.client)
        settings[client + 1] = dataclasses.replace(settings[client + 1], **case.server)
        if client != CAT and settings[client].identity is None:  # then this program also serves plaintext
            settings[client - 1] = dataclasses.replace(settings[client - 1], ca=None)
        return settings


class RotationTest(MtlsTree):
    """The certificate files are in a folder behind a symbolic link, as Kubernetes mounts a Secret."""

    def setUp(self):
        super().setUp()
        self.old, self.new = Authority(self.folder, "old"), Authority(self.folder, "new")
        self.installed = 0

    def install(self, authorities, identity):
        self.installed += 1
        folder = self.path(f"files-{self.installed}")
        os.mkdir(folder)
        with open(os.path.join(folder, "ca.pem"), "wb") as bundle:
            for authority in authorities:
                with open(authority.file, "rb") as file:
                    bundle.write(file.read())
        for file, name in zip(identity, ("own.pem", "own.key")):
            shutil.copy(file, os.path.join(folder, name))
        os.symlink(folder, self.path("link"))
        os.replace(self.path("link"), self.path("tls"))

    def handshake(self, server, authority, identity):
        """Returns the serial of the server's certificate, or None if the server rejects this client."""
        context = ssl.create_default_context(cafile=authority.file)
        context.load_cert_chain(*identity)
        context.set_alpn_protocols(["h2"])
        host, port = server.addresses[0].split(":")
        try:
            with socket.create_connection((host, port), PATIENCE) as connection:
                with context.wrap_socket(connection, server_hostname=host) as tls:
                    # With TLS 1.3 the server checks the client's certificate only after the client has finished its
                    # handshake.
                    return int(tls.getpeercert()["serialNumber"], 16) if tls.recv(1) else None
        except (ssl.SSLError, ConnectionError):
            return None

    @staticmethod
    def serial(identity):
        output = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", identity[0]], check=True,
                                capture_output=True, timeout=PATIENCE).stdout  # fmt: skip
        return int(output.decode().partition("=")[2], 16)

    def test_new_certificates_and_a_new_authority_under_load(self):
        old, new = self.old.issue("old-own"), self.new.issue("new-own")
        files = ["--tls_certificate", self.path("tls", "own.pem"), "--tls_key", self.path("tls", "own.key")]
        to_servers = ["--tls_ca", self.path("tls", "ca.pem")]
        from_clients = ["--tls_client_ca", self.path("tls", "ca.pem")]
        self.install([self.old], old)
        workers = [self.start_worker("127.0.0.1:0", *files, *from_clients) for _ in range(2)]
        below = [worker.addresses[0] for worker in workers]
        # The cache must be small. Otherwise the mid-level aggregator would serve the load from it.
        mid_level = ["--mid_level", "--mid_level_cache", "200kb", *files, *from_clients, *to_servers]
        mid = self.start_aggregator(below, *mid_level)
        top = self.start_aggregator(mid.addresses[:1], *files, *from_clients, *to_servers)
        servers = (*workers, mid, top)

        def read_anew():
            result = self.cat(top, *files, *to_servers)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertTrue(result.stdout == self.data)

        load = self.start_load(top, *files, *to_servers)
        self.assertTrue(all(self.handshake(server, self.old, old) == self.serial(old) for server in servers))

        self.install([self.old, self.new], old)
        wait_until(lambda: all(self.handshake(server, self.old, new) for server in servers), "both authorities")
        read_anew()
        self.install([self.old, self.new], new)
        wait_until(lambda: all(self.handshake(server, self.new, old) == self.serial(new) for server in servers),
                   "the new certificates")  # fmt: skip
        read_anew()
        self.install([self.new], new)
        wait_until(lambda: not any(self.handshake(server, self.new, old) for server in servers),
                   "the old authority to be gone")  # fmt: skip
        read_anew()

        # The mid-level aggregator reconnects to workers that accept only the new authority.
        for worker in workers:
            self.assertEqual(worker.terminate(), 0)
            wait_until(lambda: metric(mid, CONNECTED) == 1, "a worker to be gone")
            self.start_worker(worker.addresses[0], *files, *from_clients)
            wait_until(lambda: metric(mid, CONNECTED) == 2, "the new certificate to be taken")

        blocks = metric(mid, READ)
        wait_until(lambda: metric(mid, READ) > blocks + 10, "the load to go on")
        self.assertIsNone(load.poll())
        report = self.stop_load(load)
        self.assertEqual((report["errors"], report["error_sample"], report["bad_bytes"]), (0, "", 0))

        # The mid-level aggregator has no replica that could take over, so no load runs during its restart.
        self.assertEqual(mid.terminate(), 0)
        self.start_aggregator(below, *mid_level, listen=mid.addresses[0])
        wait_until(lambda: self.cat(top, *files, *to_servers).returncode == 0,
                   "the aggregator to show its new certificate")  # fmt: skip
        read_anew()

    def start_load(self, aggregator, *flags):
        load = subprocess.Popen(
            [program("sluice-load"), "--aggregator", aggregator.addresses[0], "--file", "data", "--clients", "2", "--duration",
             f"{PATIENCE}s", "--warmup", "1", "--compare", self.path("input"), "--start_file", self.path("input"),
             "--stop_file", self.path("stop"), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.addCleanup(load.__exit__, None, None, None)  # closes the pipes and waits
        self.addCleanup(load.kill)
        self.assertEqual(load.stderr.readline(), b"warm\n")
        return load

    def stop_load(self, load):
        open(self.path("stop"), "wb").close()
        output, error = load.communicate(timeout=PATIENCE)
        self.assertEqual((load.returncode, error), (0, b""))
        return json.loads(output)


if __name__ == "__main__":
    main()
