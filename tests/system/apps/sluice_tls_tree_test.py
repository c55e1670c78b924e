"""Replaces certificates while a load reads through all hops of a tree with mTLS: an aggregator, a mid-level aggregator,
workers. sluice_tls_matrix_test.py has the proxy, and the faults of each hop.

Run as: sluice_tls_tree_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from certificates import Authority, Mounted, handshake, serial  # noqa: E402
from serving import PATIENCE, Server, main, metric, program, run, wait_until  # noqa: E402

CONNECTED = "sluice_workers_connected"
READ = 'sluice_blocks_total{outcome="complete"}'


class RotationTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-mtls-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.files = Mounted(self.folder)
        self.old, self.new = Authority(self.folder, "old"), Authority(self.folder, "new")
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

    def test_new_certificates_and_a_new_authority_under_load(self):
        old, new = self.old.issue("old-own"), self.new.issue("new-own")
        files = ["--tls_certificate", self.files.certificate, "--tls_key", self.files.key]
        to_servers = ["--tls_ca", self.files.ca]
        from_clients = ["--tls_client_ca", self.files.ca]
        self.files.install([self.old], old)
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
        self.assertTrue(all(handshake(server.addresses[0], self.old, old) == serial(old) for server in servers))

        self.files.install([self.old, self.new], old)
        wait_until(lambda: all(handshake(server.addresses[0], self.old, new) for server in servers), "both authorities")
        read_anew()
        self.files.install([self.old, self.new], new)
        wait_until(lambda: all(handshake(server.addresses[0], self.new, old) == serial(new) for server in servers),
                   "the new certificates")  # fmt: skip
        read_anew()
        self.files.install([self.new], new)
        wait_until(lambda: not any(handshake(server.addresses[0], self.new, old) for server in servers),
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
