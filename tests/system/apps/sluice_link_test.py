#!/usr/bin/env python3
"""Tests of sluice-link with real aggregators that share a link."""

import contextlib
import os
import signal
import socket
import subprocess
import unittest

from serving import ServingTest, fetch, main, metric, program, run, wait_until

BUDGET = 32768
LEASED = "sluice_budget_leased"


class CommandLineTest(unittest.TestCase):
    GOOD = ("--socket", "/run/link.sock", "--buffer", "32kb", "--check-config")

    def refused(self, words, *flags):
        result = run("sluice-link", *flags)
        self.assertEqual(result.returncode, 2, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr.decode())

    def test_check_config(self):
        result = run("sluice-link", *self.GOOD)
        self.assertEqual((result.returncode, result.stdout), (0, b"config ok\n"), result.stderr)
        every = ("--socket_mode", "0660", "--socket_group", str(os.getgid()), "--allowed_uids", "1,2", "--budget", "16kb",
                 "--mode", "fifo", "--lease_time", "100ms", "--admin", "127.0.0.1:0", "--log_level", "warning")  # fmt: skip
        self.assertEqual(run("sluice-link", *self.GOOD, *every).returncode, 0)

    def test_bad_flags_are_named(self):
        self.refused(["socket is empty"], "--buffer", "32kb")
        self.refused(["link.buffer is empty"], "--socket", "/run/link.sock")
        self.refused(["socket_mode", "rw"], *self.GOOD, "--socket_mode", "rw")
        self.refused(["socket_mode", "7777"], *self.GOOD, "--socket_mode", "7777")
        self.refused(["socket_group", "no-such-group"], *self.GOOD, "--socket_group", "no-such-group")
        self.refused(["allowed_uids", "root"], *self.GOOD, "--allowed_uids", "root")
        self.refused(["mode", "lifo"], *self.GOOD, "--mode", "lifo")
        self.refused(["lease_time: 1ms is outside of 20ms to 10s"], *self.GOOD, "--lease_time", "1ms")
        self.refused(["budget_bytes"], *self.GOOD, "--budget", "0")
        self.refused(["admin", "nowhere"], *self.GOOD, "--admin", "nowhere")
        self.refused(["108"], "--socket", "/" + 107 * "x", "--buffer", "32kb")

    def test_flags_of_the_aggregator_are_checked(self):
        good = ("--listen", "127.0.0.1:0", "--workers", "a:1", "--check-config", "--buffer", "32kb")
        shared = ("--shared_link_socket", "/run/link.sock")
        self.assertEqual(run("sluice-aggregator", *good, *shared, "--shared_link_weight", "3").returncode, 0)
        for word, flags in (
            ("share.socket", ("--shared_link_weight", "3")),
            ("share.weight", (*shared, "--shared_link_weight", "0")),
            ("share.application", (*shared, "--shared_link_application", "a b")),
            ("policy", (*shared, "--policy", "unscheduled")),
        ):
            result = run("sluice-aggregator", *good, *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(word, result.stderr.decode())
        result = run("sluice-aggregator", *good[:-2], *shared)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("shared_link: the budget of the whole link is not known", result.stderr.decode())


class SharedLinkOptionsTest(ServingTest):
    def setUp(self):
        super().setUp()
        self.workers = self.start_workers()

    def test_a_budget_above_the_buffer_is_warned_of(self):
        large = f"budget_bytes={2 * BUDGET} buffer_bytes={BUDGET}"
        budget = ("--budget", str(2 * BUDGET))
        self.assertEqual(self.start_daemon(*budget).text().count(large), 1)
        aggregator = self.start_aggregator(self.workers.addresses, "--buffer", str(BUDGET), *budget)
        self.assertEqual(aggregator.text().count(large), 1)

    def start_daemon(self, *flags):
        return self.start("sluice-link", "--socket", self.path("link.sock"), "--buffer", str(BUDGET), "--admin",
                          "127.0.0.1:0", *flags)  # fmt: skip

    def start_sharer(self, application, *flags):
        return self.start_aggregator(
            self.workers.addresses, "--buffer", str(BUDGET), "--admin", "127.0.0.1:0", "--shared_link_socket",
            self.path("link.sock"), "--shared_link_application", application, *flags)  # fmt: skip

    def assert_reads(self, aggregator):
        result = self.cat(aggregator, "data")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, self.source)

    def await_leased(self, aggregator, leased=1):
        wait_until(lambda: metric(aggregator, LEASED) == leased, f"the budget to be leased: {leased}")

    def await_metric(self, server, name, value):
        wait_until(lambda: sample(server, name) == value, f"{name} to be {value}")

    @contextlib.contextmanager
    def load(self, aggregator):
        """Runs a load that reads as fast as it can until the `with` block ends."""
        self.stripe("data", self.source, "--force")  # leaves the source in the file "input"
        process = subprocess.Popen([program("sluice-load"), "--aggregator", aggregator.addresses[0], "--file", "data",
                                    "--clients", "4", "--blocks", "1000000"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def test_two_aggregators_share_the_link(self):
        daemon = self.start_daemon()
        first, second = self.start_sharer("first"), self.start_sharer("second", "--shared_link_weight", "3")
        for aggregator in (first, second):
            self.await_leased(aggregator)
            self.assert_reads(aggregator)
        for application in ("first", "second"):
            self.await_metric(daemon, f'sluice_sharing_processes{{application="{application}"}}', 1)
            label = f'{{application="{application}"}}'
            wait_until(lambda label=label: sample(daemon, f"sluice_sharing_received_bytes_total{label}") >= len(self.source),
                       "what was received to be counted")  # fmt: skip
        with self.load(first), self.load(second):
            wait_until(lambda: sample(daemon, 'sluice_sharing_demand_bytes{application="first"}') > 0
                       and sample(daemon, 'sluice_sharing_demand_bytes{application="second"}') > 0, "both to be busy")  # fmt: skip
            for _ in range(20):
                lines = fetch(daemon, "/metrics").text.splitlines()  # one scrape, so all values are of one moment
                leases = [float(line.split()[1]) for line in lines if line.startswith("sluice_sharing_lease_bytes{")]
                self.assertEqual(len(leases), 2)
                self.assertLessEqual(sum(leases), BUDGET)
        self.assertEqual(daemon.terminate(), 0)
        for aggregator in (first, second):
            self.await_leased(aggregator, 0)
            self.assert_reads(aggregator)

    def test_a_process_that_is_killed_leaves_no_hole(self):
        daemon = self.start_daemon()
        first, second = self.start_sharer("first"), self.start_sharer("second")
        with self.load(first), self.load(second):
            wait_until(lambda: sample(daemon, 'sluice_sharing_lease_bytes{application="first"}') > 0, "a lease")
            first.process.kill()
            wait_until(lambda: metric(second, "sluice_budget_bytes") == BUDGET, "the other one to have the whole link")
        self.await_metric(daemon, "sluice_sharing_draining_bytes", 0)
        self.assertIsNone(sample(daemon, 'sluice_sharing_lease_bytes{application="first"}'))

    def test_a_process_that_hangs_loses_its_lease_and_comes_back(self):
        daemon = self.start_daemon("--lease_time", "100ms")
        first, second = self.start_sharer("first"), self.start_sharer("second")
        self.await_leased(first)
        with self.load(second):
            before = sample(daemon, 'sluice_sharing_expirations_total{application="first"}')
            first.process.send_signal(signal.SIGSTOP)
            expirations = 'sluice_sharing_expirations_total{application="first"}'
            wait_until(lambda: sample(daemon, expirations) > before, "the lease to end")
            wait_until(lambda: metric(second, "sluice_budget_bytes") == BUDGET, "the other one to have the whole link")
            first.process.send_signal(signal.SIGCONT)
            self.assert_reads(first)
            self.await_leased(first)
        self.assertIn("event=expired application=first", daemon.text())
        self.assertIn("event=returned application=first", daemon.text())

    def test_the_daemon_may_be_killed_and_come_back(self):
        daemon = self.start_daemon()
        first, second = self.start_sharer("first"), self.start_sharer("second")
        self.await_leased(first)
        self.await_leased(second)
        with self.load(first) as load:
            daemon.process.kill()
            daemon.process.wait()
            for aggregator in (first, second):
                self.await_leased(aggregator, 0)
                wait_until(lambda a=aggregator: metric(a, "sluice_budget_bytes") == BUDGET / 2, "the safe share")
            self.assert_reads(second)
            self.assertTrue(os.path.exists(self.path("link.sock")))
            self.start_daemon()
            for aggregator in (first, second):
                self.await_leased(aggregator)
            self.assert_reads(second)
            self.assertIsNone(load.poll())
        self.assertEqual(metric(first, 'sluice_blocks_total{outcome="failed"}'), 0)

    def test_a_daemon_that_hangs_leaves_the_safe_shares(self):
        daemon = self.start_daemon("--lease_time", "100ms")
        first, second = self.start_sharer("first"), self.start_sharer("second")
        self.await_leased(first)
        self.await_leased(second)
        with self.load(first):
            daemon.process.send_signal(signal.SIGSTOP)
            for aggregator in (first, second):
                self.await_leased(aggregator, 0)
                self.assertEqual(metric(aggregator, "sluice_budget_bytes"), BUDGET / 2)
            self.assert_reads(second)
            daemon.process.send_signal(signal.SIGCONT)
            for aggregator in (first, second):
                self.await_leased(aggregator)
            self.assert_reads(second)

    def test_another_user_is_refused(self):
        daemon = self.start_daemon("--allowed_uids", str(os.getuid() + 1))
        aggregator = self.start_sharer("stranger")
        wait_until(lambda: sample(daemon, 'sluice_sharing_refusals_total{reason="uid"}') > 0, "the refusal")
        self.assertIn(f"uid {os.getuid()} is not in allowed_uids", daemon.text())
        wait_until(lambda: "is not in allowed_uids" in aggregator.text(), "the aggregator to say why")
        self.assert_reads(aggregator)
        self.assertEqual(metric(aggregator, "sluice_budget_bytes"), BUDGET / 8)

    def test_a_second_daemon_on_the_same_socket_is_refused(self):
        self.start_daemon()
        result = run("sluice-link", "--socket", self.path("link.sock"), "--buffer", "32kb")
        self.assertEqual(result.returncode, 1)
        self.assertIn("another process serves on", result.stderr.decode())

    def test_the_socket_file_is_protected_and_replaced(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(self.path("link.sock"))
        daemon = self.start_daemon("--socket_mode", "0640")
        self.assertEqual(os.stat(self.path("link.sock")).st_mode & 0o777, 0o640)
        self.assertEqual(daemon.terminate(), 0)
        self.assertFalse(os.path.exists(self.path("link.sock")))

    def test_fifo(self):
        self.start_daemon("--mode", "fifo")
        first, second = self.start_sharer("first"), self.start_sharer("second")
        with self.load(first):
            for _ in range(3):
                self.assert_reads(second)


def sample(server, name):
    """Returns the value of a sample, or None if the server does not export it."""
    try:
        return metric(server, name)
    except AssertionError:
        return None


if __name__ == "__main__":
    main()
