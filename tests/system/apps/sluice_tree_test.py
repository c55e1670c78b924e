"""Tests an aggregation tree as users build it: sluice-stripe, sluice-worker and sluice-aggregator at several levels,
and sluice-cat.

Run as: sluice_tree_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import os
import random
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from serving import Server, fetch, main, metric, run, wait_until  # noqa: E402

SRU_BYTES = 5000


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tree-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def stripe(self, levels, data, *flags):
        with open(self.path("input"), "wb") as file:
            file.write(data)
        return run("sluice-stripe", "--out", self.path("stripes"), "--workers", "x".join(map(str, levels)), "--sru",
                   str(SRU_BYTES), "--name", "data", *flags, self.path("input"))

    def striped(self, levels, *flags, blocks=6):
        """Stripes a file over the levels and returns its bytes. The file has several data blocks, and the last one
        is not full."""
        block_bytes = SRU_BYTES
        for workers in levels:
            block_bytes *= workers
        data = random.Random(1).randbytes(blocks * block_bytes - 12345)
        result = self.stripe(levels, data, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return data

    def start(self, name, *flags):
        server = Server(self.folder, name, *flags)
        self.addCleanup(server.close)
        return server

    def start_workers(self, folder, count):
        return self.start("sluice-worker", "--data", folder, "--listen", ",".join(["127.0.0.1:0"] * count))

    def start_aggregator(self, level, addresses, *flags):
        return self.start("sluice-aggregator", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--level", level,
                          "--workers", ",".join(addresses), *flags)

    def start_tree(self, levels, folder=None, depth=0, flags=()):
        """Returns the top aggregator of this part of the tree. Its `below` has the aggregators below it, or a single
        entry for the workers."""
        folder = folder or self.path("stripes")
        if len(levels) == 1:
            below = [self.start_workers(folder, levels[0])]
            addresses = below[0].addresses
        else:
            below = [self.start_tree(levels[1:], os.path.join(folder, f"mla-{m:04}"), depth + 1, flags)
                     for m in range(levels[0])]
            addresses = [aggregator.addresses[0] for aggregator in below]
        aggregator = self.start_aggregator(f"level-{depth}", addresses, *(["--mid-level"] if depth else []), *flags)
        aggregator.below = below
        return aggregator

    def cat(self, aggregator, *flags):
        return run("sluice-cat", "--aggregator", aggregator.addresses[0], *flags, "data")

    def test_two_levels(self):
        data = self.striped([2, 4])
        top = self.start_tree([2, 4])
        result = self.cat(top)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == data)
        block_bytes = 8 * SRU_BYTES
        for block in (0, 3, 5):
            result = self.cat(top, "--block", str(block))
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertTrue(result.stdout == data[block * block_bytes:(block + 1) * block_bytes])
        for server in (*top.below, top):
            self.assertEqual(server.terminate(), 0, server.text())

    def test_three_levels(self):
        data = self.striped([2, 2, 3], blocks=9)
        top = self.start_tree([2, 2, 3])
        result = self.cat(top)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == data)
        self.assertEqual(run("sluice-stripe", "--verify", self.path("stripes")).returncode, 0)

    def test_replicas_of_the_top_level_stand_in_for_an_aggregator(self):
        data = self.striped([2, 3], "--replicas", "2")
        top = self.start_tree([2, 3])
        top.below[1].close()
        result = self.cat(top)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == data)

    def test_a_dead_worker_of_the_lowest_level_is_a_gap_of_its_srus(self):
        data = self.striped([2, 4])
        most = self.start_workers(self.path("stripes/mla-0001"), 3)
        last = self.start_workers(self.path("stripes/mla-0001"), 1)
        whole = self.start_workers(self.path("stripes/mla-0000"), 4)
        below = [self.start_aggregator("mla", workers, "--mid-level", "--sru-timeout", "2s")
                 for workers in (whole.addresses, most.addresses + last.addresses)]
        top = self.start_aggregator("hla", [aggregator.addresses[0] for aggregator in below])
        last.close()
        result = self.cat(top)
        self.assertEqual(result.returncode, 1)
        self.assertIn(last.addresses[0], result.stderr.decode())
        result = self.cat(top, "--partial")
        self.assertEqual(result.returncode, 3, result.stderr)
        expected = bytearray(data)
        named = []
        for begin in range(7 * SRU_BYTES, len(data), 8 * SRU_BYTES):
            end = min(begin + SRU_BYTES, len(data))
            expected[begin:end] = bytes(end - begin)
            named.append(f"missing: bytes {begin} to {end - 1}: ")
        self.assertTrue(result.stdout == bytes(expected))
        told = result.stderr.decode().splitlines()
        self.assertEqual(len(told), len(named), told)
        for line, name in zip(told, named):
            self.assertIn(name, line)
            self.assertIn(below[1].addresses[0], line)

    def test_metrics_and_logs_name_their_level(self):
        self.striped([2, 4])
        top = self.start_tree([2, 4])
        self.assertEqual(self.cat(top).returncode, 0)
        for server, level in ((top, "level-0"), (top.below[0], "level-1")):
            samples = [line for line in fetch(server, "/metrics").text.splitlines() if not line.startswith("#")]
            self.assertGreater(len(samples), 100)
            for line in samples:
                self.assertIn(f'level="{level}"', line)
            for line in server.text().splitlines():
                self.assertIn(f" tree_level={level} ", line)
        mid_level = top.below[0]
        answered = 'sluice_worker_sru_requests_total{outcome="ok",level="level-1"}'
        wait_until(lambda: metric(mid_level, answered) > 0, "the answers to be counted")
        self.assertGreater(metric(mid_level, 'sluice_mid_level_cache_lookups_total{outcome="miss",level="level-1"}'), 0)
        self.assertGreater(metric(mid_level, 'sluice_mid_level_read_ahead_blocks_total{outcome="used",level="level-1"}'), 0)
        self.assertGreater(metric(mid_level, 'sluice_goodput_bytes_total{worker_kind="primary",level="level-1"}'), 0)
        self.assertNotIn("sluice_mid_level", fetch(top, "/metrics").text)

    def test_the_aggregators_in_the_wrong_order_are_found_out(self):
        self.striped([2, 4])
        top = self.start_tree([2, 4])
        turned = self.start_aggregator("hla", [aggregator.addresses[0] for aggregator in reversed(top.below)])
        result = self.cat(turned)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(b"no file", result.stderr)

    def test_striping_says_what_it_did_and_refuses_what_is_wrong(self):
        result = self.stripe([2, 3], bytes(100000), "--replicas", "2x1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"data: 100000 bytes in 7 SRUs of 15000 over 2x3 workers, replicas 2x1, CRC32C ", result.stdout)
        verified = run("sluice-stripe", "--verify", self.path("stripes"))
        self.assertEqual(verified.returncode, 0, verified.stderr)
        for levels, flags, message in ((["2", "y"], (), "give a number, or one for each level: 4x32"),
                                       ([2, 0], (), "--workers is 0; it must be 1 to 65536"),
                                       ([2, 3], ("--replicas", "1x2x3"), "it must be one number or 2"),
                                       ([2, 3], ("--replicas", "1x4"), "--replicas is 4; it must be 1 to 3")):
            result = self.stripe(levels, b"x", *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(message, result.stderr.decode())


class TreeCommandLineTest(unittest.TestCase):
    GOOD = ("--listen", "127.0.0.1:0", "--workers", "127.0.0.1:1", "--check-config")

    def test_flags_and_config(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            config.write('{"level": "mla", "mid_level": {"cache": "1mb", "deadline_reserve": "2ms"}}')
            config.flush()
            for flags in (("--mid-level",), ("--mid-level-cache", "8mb", "--mid-level-deadline-reserve", "1ms"),
                          ("--level", "hla"), ("--config", config.name)):
                result = run("sluice-aggregator", *self.GOOD, *flags)
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_bad_values_are_named(self):
        for flags, message in ((("--level", "a b"), 'level is "a b"'),
                               (("--level", "x" * 65), "level is"),
                               (("--mid-level-cache", "0"), "mid_level.cache is 0"),
                               (("--mid-level-cache", "much"), "mid_level.cache: "),
                               (("--mid-level-deadline-reserve", "soon"), "mid_level.deadline_reserve: ")):
            result = run("sluice-aggregator", *self.GOOD, *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(message, result.stderr.decode())


if __name__ == "__main__":
    main()
