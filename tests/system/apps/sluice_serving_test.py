"""Tests sluice-aggregator, sluice-cat and sluice-load as users run them, over a real sluice-worker.

Run as: sluice_serving_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error

sys.dont_write_bytecode = True
from serving import PATIENCE, SRU_BYTES, WORKERS, ServingTest, fetch, main, metric, program, run, wait_until  # noqa: E402


def resident_bytes(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1])


def sanitized(name):
    """Whether the program runs under AddressSanitizer, which delays the reuse of freed memory."""
    with open(program(name), "rb") as binary:
        return b"__asan_init" in binary.read()


def files_below(folder):
    return sorted(os.listdir(folder))


class AggregatorCommandLineTest(unittest.TestCase):
    GOOD = ("--listen", "127.0.0.1:0", "--workers", "127.0.0.1:1,127.0.0.1:2")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-serving-")
        self.addCleanup(folder.cleanup)
        self.config = os.path.join(folder.name, "config.json")

    def refused(self, words, *flags):
        result = run("sluice-aggregator", *flags)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, b"")
        for word in words:
            self.assertIn(word, result.stderr.decode())

    def check_config(self, text):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        return ("--config", self.config, "--check-config")

    def test_help_and_version(self):
        for name in ("sluice-aggregator", "sluice-cat", "sluice-load"):
            for flag in ("--help", "--version"):
                result = run(name, flag)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(name, result.stdout.decode())
                self.assertEqual(result.stderr, b"")

    def test_check_config_starts_nothing(self):
        result = run("sluice-aggregator", *self.GOOD, "--check-config")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"config ok\n", b""))

    def test_check_config_warns_as_a_start_does(self):
        data = tempfile.TemporaryDirectory(prefix="sluice-serving-")
        self.addCleanup(data.cleanup)
        link = ("--buffer", "32kb", "--budget", "64kb")
        large = "budget_bytes=65536 buffer_bytes=32768"
        floor = '{"schedule": {"budgetFloor": "64kb", "budgetLimit": "128kb"}}'
        for words, command in (
            ((large, "has no TLS"), ("sluice-aggregator", "--listen", "0.0.0.0:7500", "--workers", "a:1", *link)),
            ((large,), ("sluice-aggregator", *self.GOOD, "--buffer", "32kb", *self.check_config(floor))),
            ((large, "whoever reaches"), ("sluice-proxy", "--listen", "0.0.0.0:7400", "--workers", "10.0.0.0/8", *link)),
            ((large,), ("sluice-link", "--socket", "/run/link.sock", *link)),
            (("no worker-NNNN", "has no TLS"), ("sluice-worker", "--listen", "0.0.0.0:7000", "--data", data.name)),
        ):
            with self.subTest(command):
                result = run(*command, "--check-config")
                self.assertEqual((result.returncode, result.stdout), (0, b"config ok\n"), result.stderr)
                for word in words:
                    self.assertEqual(result.stderr.decode().count(word), 1, result.stderr)

    def test_every_field_of_the_config(self):
        config = {
            "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "workers": ["a:1", "b-{0..3}:2", "c-{0..}:3"],
            "link": {"capacity": "100mbit", "buffer": "32kb", "rtt": "200us", "mtu": 1500},
            "schedule": {"policy": "batches", "budget": "16kb", "queueLimit": 100},
            "sruTimeout": "1s", "blockTimeout": "2s", "attempts": 3, "segmentBytes": "1mb", "logLevel": "warning",
            "reflection": True, "drainTimeout": "3s", "connectTimeout": "4s", "drainDelay": "5s", "reloadInterval": "6s",
            "readMemory": "512mb",
        }
        result = run("sluice-aggregator", *self.check_config(json.dumps(config)))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_typo_in_the_config_is_named(self):
        self.refused(["wrokers", "config.json"], *self.check_config('{"listen": "127.0.0.1:0", "wrokers": ["a:1"]}'))
        self.refused(["config.json"], *self.check_config('{"listen": '))
        self.refused(["schedule.policy", "roling"], *self.GOOD, *self.check_config('{"schedule": {"policy": "roling"}}'))
        self.refused(["link.buffer", "32kilo"], *self.GOOD, *self.check_config('{"link": {"buffer": "32kilo"}}'))

    def test_bad_flags_are_named(self):
        self.refused(["--lisen"], *self.GOOD, "--lisen", "127.0.0.1:0")
        self.refused(["listen"], "--workers", "a:1")
        self.refused(["workers"], "--listen", "127.0.0.1:0")
        self.refused(["no-port"], "--listen", "127.0.0.1:0", "--workers", "no-port")
        self.refused(["workers", "no-port-0"], "--listen", "127.0.0.1:0", "--workers", "no-port-{0..}")
        self.refused(["workers", "a-{0..:1"], "--listen", "127.0.0.1:0", "--workers", "a-{0..:1")
        self.refused(["workers", "dns:///a-0:1"], "--listen", "127.0.0.1:0", "--workers", "dns:///a-{0..}:1")
        self.refused(["workers", "dns+w:1", "order"], "--listen", "127.0.0.1:0", "--workers", "dns+w:1")
        self.refused(["reload_interval", "often"], *self.GOOD, "--reload_interval", "often")
        self.refused(["drain_delay", "-1s"], *self.GOOD, "--drain_delay", "-1s")
        self.refused(["budget"], *self.GOOD, "--budget", "0")
        self.refused(["queue_limit"], *self.GOOD, "--queue_limit", "0")
        self.refused(["queue_limit"], *self.GOOD, "--queue_limit", "many")
        self.refused(["queue_timeout: 0 is not above 0"], *self.GOOD, "--queue_timeout", "0s")
        self.refused(["queue_timeout", "soon"], *self.GOOD, "--queue_timeout", "soon")
        self.refused(["attempts is 0"], *self.GOOD, "--attempts", "0")
        self.refused(["attempts", "4294967297"], *self.GOOD, "--attempts", "4294967297")
        self.refused(["sru_timeout", "fast"], *self.GOOD, "--sru_timeout", "fast")
        self.refused(["sru_timeout is 0"], *self.GOOD, "--sru_timeout", "0s")
        self.refused(["segment_bytes"], *self.GOOD, "--segment_bytes", "2gb")
        self.refused(["read_memory", "much"], *self.GOOD, "--read_memory", "much")
        self.refused(["read_memory is 0"], *self.GOOD, "--read_memory", "0")
        self.refused(["log_level", "loud"], *self.GOOD, "--log_level", "loud")
        self.refused(["capacity"], *self.GOOD, "--capacity", "12mbps")

    def test_an_address_that_cannot_be_is_refused_before_anything_starts(self):
        self.refused(["listen", "nowhere"], "--listen", "nowhere", "--workers", "a:1", "--check-config")
        self.refused(["admin", "nowhere"], *self.GOOD, "--admin", "nowhere", "--check-config")
        self.refused(["listen", "unix:"], "--listen", "unix:", "--workers", "a:1", "--check-config")
        self.refused(["ready_file", "/nowhere/ready"], *self.GOOD, "--ready-file", "/nowhere/ready", "--check-config")

    def test_a_busy_port_is_named_and_ends_the_program(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for flags in (("--listen", address), ("--listen", "127.0.0.1:0", "--admin", address)):
                result = run("sluice-aggregator", "--workers", "127.0.0.1:1", "--connect_timeout", "1s", *flags)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(address, result.stderr.decode())


class CatCommandLineTest(unittest.TestCase):
    def test_bad_flags_are_named(self):
        for words, flags in ((["--aggregator"], ("data",)), (["FILE"], ("--aggregator", "a:1")),
                             (["--blok"], ("--aggregator", "a:1", "--blok", "1", "data")),
                             (["block"], ("--aggregator", "a:1", "--block", "-1", "data")),
                             (['aggregator: "127.0.0.1" is not host:port or unix:PATH'], ("--aggregator", "127.0.0.1", "data")),
                             (['aggregator: "unix:"'], ("--aggregator", "unix:", "data")),
                             (["timeout", "soon"], ("--aggregator", "a:1", "--timeout", "soon", "data")),
                             (["progress", "maybe"], ("--aggregator", "a:1", "--progress", "maybe", "data"))):
            result = run("sluice-cat", *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stdout, b"")
            for word in words:
                self.assertIn(word, result.stderr.decode())

    def test_an_aggregator_that_does_not_respond_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            result = run("sluice-cat", "--aggregator", address, "--timeout", "200ms", "data")
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertEqual(result.stderr.decode(), f"sluice-cat: {address} has not responded within 200ms\n")

    def test_a_worker_is_not_an_aggregator(self):
        with tempfile.TemporaryDirectory() as folder:
            ready, address = pathlib.Path(folder, "ready"), f"unix:{folder}/worker"
            (pathlib.Path(folder) / "data" / "worker-0000").mkdir(parents=True)
            argv = [program("sluice-worker"), "--data", f"{folder}/data", "--listen", address, "--ready-file", str(ready)]
            with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
                try:
                    deadline = time.monotonic() + 30
                    while not ready.exists() and time.monotonic() < deadline:
                        time.sleep(0.02)
                    self.assertTrue(ready.exists())
                    result = run("sluice-cat", "--aggregator", address, "data")
                finally:
                    worker.kill()
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{address} is not an aggregator".encode(), result.stderr)

    def test_an_aggregator_that_is_not_there(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            result = run("sluice-cat", "--aggregator", address, "data")
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.startswith(b"sluice-cat: "), result.stderr)

    def test_a_timeout_beyond_all_time_is_a_timeout(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            result = run("sluice-cat", "--aggregator", address, "--timeout", "1000000000h", "data")
        self.assertEqual(result.returncode, 1)
        self.assertNotIn(b"eadline", result.stderr)


class CatTest(ServingTest):
    def test_to_a_pipe_it_writes_the_bytes_and_nothing_else(self):
        result = self.cat(self.start_both(), "data")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.source)

    def test_one_block(self):
        aggregator = self.start_both()
        block_bytes = WORKERS * SRU_BYTES
        for block in (0, 5, 10):
            result = self.cat(aggregator, "--block", str(block), "data")
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertTrue(result.stdout == self.source[block * block_bytes:(block + 1) * block_bytes])
        result = self.cat(aggregator, "--block", "11", "data")
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(b"it has 11 blocks", result.stderr)

    def test_empty_and_tiny_files(self):
        aggregator = self.start_both()
        for name, data in (("empty", b""), ("one", b"x")):
            self.stripe(name, data)
            result = self.cat(aggregator, name)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, data, b""))

    def test_over_a_unix_socket(self):
        workers = self.start_workers()
        path = "unix:" + self.path("socket")
        aggregator = self.start_aggregator(workers.addresses, listen=path)
        self.assertEqual(aggregator.addresses[0], path)
        self.assertTrue(self.cat(aggregator, "data").stdout == self.source)

    def test_an_output_file_appears_when_it_is_whole(self):
        aggregator = self.start_both()
        os.mkdir(self.path("out"))
        self.assertEqual(self.cat(aggregator, "--output", self.path("out/file"), "data").returncode, 0)
        with open(self.path("out/file"), "rb") as file:
            self.assertTrue(file.read() == self.source)
        self.assertEqual(self.cat(aggregator, "--output", self.path("out/other"), "no-such-file").returncode, 1)
        self.assertEqual(self.cat(aggregator, "--output", self.path("out/file"), "no-such-file").returncode, 1)
        self.assertEqual(files_below(self.path("out")), ["file"])
        result = self.cat(aggregator, "--output", self.path("no-folder/file"), "data")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"no-folder/file: No such file", result.stderr)

    def test_an_unknown_file_and_a_bad_name(self):
        aggregator = self.start_both()
        for name in ("no-such-file", "../data", "a/b"):
            result = self.cat(aggregator, name)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertTrue(result.stderr.startswith(b"sluice-cat: "), result.stderr)
            self.assertIn(name.encode(), result.stderr)

    def test_partial_fills_with_zeros_and_names_what_is_missing(self):
        aggregator = self.start_both("--sru_timeout", "1s")
        os.remove(self.path("stripes/worker-0001/data/stripe-0"))
        self.assertEqual(self.cat(aggregator, "data").returncode, 1)
        result = self.cat(aggregator, "--partial", "data")
        self.assertEqual(result.returncode, 3)
        expected = bytearray(self.source)
        named = []
        for begin in range(SRU_BYTES, len(self.source), WORKERS * SRU_BYTES):
            end = min(begin + SRU_BYTES, len(self.source))
            expected[begin:end] = bytes(end - begin)
            named.append(f"missing: bytes {begin} to {end - 1}: ")
        self.assertTrue(result.stdout == bytes(expected))
        lines = result.stderr.decode().splitlines()
        self.assertEqual(len(lines), len(named))
        for line, name in zip(lines, named):
            self.assertIn(name, line)
            self.assertIn("worker 1", line)

    def test_a_corrupted_stripe_is_found_and_a_replica_helps(self):
        self.stripe("twice", self.source, "--replicas", "2")
        aggregator = self.start_both()
        for name in ("data", "twice"):
            with open(self.path(f"stripes/worker-0002/{name}/stripe-0"), "r+b") as stripe:
                stripe.seek(3 * SRU_BYTES + 5)
                byte = stripe.read(1)
                stripe.seek(-1, os.SEEK_CUR)
                stripe.write(bytes([byte[0] ^ 1]))
        result = self.cat(aggregator, "data")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"CRC32C", result.stderr)
        self.assertIn(b"worker 2", result.stderr)
        result = self.cat(aggregator, "twice")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.source)

    def test_it_ends_at_once_when_the_reader_of_the_pipe_goes(self):
        self.stripe("large", self.source * 50)
        aggregator = self.start_both("--admin", "127.0.0.1:0")
        cat = subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "large"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(cat.stdout.read(10) == self.source[:10])
        cat.stdout.close()
        self.assertNotEqual(cat.wait(timeout=PATIENCE), 0)
        cat.stderr.close()
        wait_until(lambda: metric(aggregator, "sluice_in_flight_bytes") == 0, "the link to be idle")

    def test_json_stats(self):
        aggregator = self.start_both()
        self.assertEqual(self.cat(aggregator, "--json_stats", self.path("stats"), "data").returncode, 0)
        with open(self.path("stats"), encoding="utf-8") as file:
            stats = json.load(file)
        self.assertEqual(stats["bytes"], len(self.source))
        self.assertEqual(len(stats["block_ms"]), 11)

    def test_timeout(self):
        workers = self.start_workers("--think_time", "20s")
        aggregator = self.start_aggregator(workers.addresses)
        result = self.cat(aggregator, "--timeout", "300ms", "data")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"has not sent the whole response within 300ms", result.stderr)


class AggregatorTest(ServingTest):
    def test_sigterm_lets_a_read_finish(self):
        workers = self.start_workers("--think_time", "100ms")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0")
        cat = subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "data"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: metric(aggregator, "sluice_ungranted_calls") > 0, "the read to begin")
        aggregator.process.send_signal(signal.SIGTERM)
        out, err = cat.communicate(timeout=PATIENCE)
        self.assertEqual((cat.returncode, err), (0, b""))
        self.assertTrue(out == self.source)
        self.assertEqual(aggregator.process.wait(timeout=PATIENCE), 0)

    def test_sigterm_cancels_what_outlasts_the_drain_timeout(self):
        workers = self.start_workers("--think_time", "50s")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0", "--drain_timeout", "200ms",
                                           "--sru_timeout", "100s")
        cat = subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "data"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_until(lambda: metric(aggregator, "sluice_ungranted_calls") > 0, "the read to begin")
        self.assertEqual(aggregator.terminate(), 0)
        cat.communicate(timeout=PATIENCE)
        self.assertEqual(cat.returncode, 1)

    def test_starts_without_its_workers_and_finds_them_later(self):
        workers = self.start_workers()
        workers.close()
        aggregator = self.start_aggregator(workers.addresses, "--connect_timeout", "1s")
        self.assertIn(f"worker={workers.addresses[0]}", aggregator.text())
        self.assertEqual(self.cat(aggregator, "data").returncode, 1)
        self.start("sluice-worker", "--data", self.path("stripes"), "--listen", ",".join(workers.addresses))
        wait_until(lambda: self.cat(aggregator, "data").returncode == 0, "the aggregator to find its workers")

    def test_a_worker_that_dies_while_it_is_read_is_replaced(self):
        self.stripe("twice", self.source * 20, "--replicas", "2")
        most = self.start_workers(count=WORKERS - 1)
        last = self.start_workers(count=1)
        aggregator = self.start_aggregator(most.addresses + last.addresses)
        with subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "twice"], bufsize=0,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cat:
            out = cat.stdout.read(100000)
            last.close()
            rest, err = cat.communicate(timeout=PATIENCE)
        self.assertEqual((cat.returncode, err), (0, b""))
        self.assertTrue(out + rest == self.source * 20)

    def test_the_status_page_is_the_aggregators_alone(self):
        workers = self.start_workers("--admin", "127.0.0.1:0")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0")
        page = fetch(aggregator, "/")
        self.assertIn('<p id="state" role="status">', page.text)
        self.assertEqual(page.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(page.headers["Cache-Control"], "no-store")
        self.assertTrue(page.headers["Content-Security-Policy"].startswith("default-src 'none'; connect-src 'self';"))
        links = fetch(workers, "/").text
        self.assertIn('<a href="metrics">', links)
        self.assertNotIn("<script", links)

    def test_a_worker_without_its_data_is_alive_and_not_ready(self):
        workers = self.start_workers("--admin", "127.0.0.1:0")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0")
        for server in (workers, aggregator):
            for path in ("/livez", "/readyz", "/healthz"):
                self.assertEqual(fetch(server, path).text, "ok\n")
        shutil.rmtree(self.path("stripes"))
        with self.assertRaises(urllib.error.HTTPError) as unready:
            fetch(workers, "/readyz")
        with unready.exception as answer:
            self.assertEqual((answer.code, answer.read()), (503, b"data: the folder was removed\n"))
        self.assertEqual(fetch(workers, "/livez").text, "ok\n")

    def test_tells_of_each_of_its_workers(self):
        workers = self.start_workers()
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0")
        self.assertEqual(self.cat(aggregator, "data").returncode, 0)
        answer = fetch(aggregator, "/workers.json")
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        told = json.loads(answer.text)
        self.assertEqual(told["total"], WORKERS)
        self.assertEqual({worker["address"] for worker in told["workers"]}, set(workers.addresses))
        for worker in told["workers"]:
            self.assertGreater(worker["responses"], 0)
            self.assertGreater(worker["ready_seconds"] + worker["transfer_seconds"], 0)
            self.assertEqual(worker["in_flight"], 0)

    def test_load_reads_right_bytes(self):
        aggregator = self.start_both()
        self.stripe("data", self.source, "--force")  # leaves the source in the file "input"
        result = run("sluice-load", "--aggregator", aggregator.addresses[0], "--file", "data", "--clients", "4",
                     "--blocks", "20", "--warmup", "1", "--compare", self.path("input"))
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["blocks"], report["errors"], report["bad_bytes"]), (80, 0, 0))
        self.assertGreater(report["goodput_bps"], 0)

    def test_load_ends_after_its_duration(self):
        aggregator = self.start_both()
        load = ("sluice-load", "--aggregator", aggregator.addresses[0], "--file", "data", "--clients", "2")
        report = json.loads(run(*load, "--duration", "300ms").stdout)
        self.assertGreaterEqual(report["seconds"], 0.3)
        self.assertGreater(report["blocks"], 20)  # the default of --blocks for two clients
        self.assertEqual(report["errors"], 0)

    def test_load_takes_blocks_or_a_duration(self):
        result = run("sluice-load", "--aggregator", "127.0.0.1:1", "--file", "data", "--blocks", "3", "--duration", "1s")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"--blocks", result.stderr)

    def test_load_counts_errors_and_goes_on(self):
        aggregator = self.start_both()
        result = run("sluice-load", "--aggregator", aggregator.addresses[0], "--file", "no-such-file", "--blocks", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["blocks"], report["errors"]), (0, 3))
        self.assertIn("NOT_FOUND", report["error_sample"])


class MetricsTest(ServingTest):
    """Checks that every metric of the aggregator in docs/reference/metrics.md changes when it should."""

    def moved(self, aggregator, expected, action):
        before = {name: metric(aggregator, name) for name in expected}
        action()
        wait_until(lambda: metric(aggregator, "sluice_queued_blocks") == 0, "the link to be idle")
        for name, change in expected.items():
            change_seen = metric(aggregator, name) - before[name]
            if change is None:
                self.assertGreater(change_seen, 0, name)
            else:
                self.assertEqual(change_seen, change, name)

    def test_a_read_that_goes_well(self):
        aggregator = self.start_both("--admin", "127.0.0.1:0", "--buffer", "30000", "--capacity", "100mbit")
        srus = -(-len(self.source) // SRU_BYTES)
        expected = {
            'sluice_goodput_bytes_total{worker_kind="primary"}': len(self.source),
            'sluice_goodput_bytes_total{worker_kind="replica"}': 0,
            'sluice_blocks_total{outcome="complete"}': 11,
            "sluice_call_retries_total": 0,
            'sluice_calls_total{outcome="rpc_error"}': 0,
            "sluice_block_seconds_count": 11,
            'sluice_block_coverage_ratio_bucket{le="0.999"}': 0,
            "sluice_block_coverage_ratio_count": 11,
            'sluice_calls_total{outcome="ok"}': None,
            "sluice_queue_wait_seconds_count": None,
            "sluice_call_transfer_seconds_count": None,
        }
        self.moved(aggregator, expected, lambda: self.assertEqual(self.cat(aggregator, "data").returncode, 0))
        self.assertGreaterEqual(metric(aggregator, 'sluice_calls_total{outcome="ok"}'), srus + 1)
        self.assertEqual(metric(aggregator, "sluice_budget_bytes"), 30000)
        self.assertEqual(metric(aggregator, "sluice_link_capacity_bytes_per_second"), 12.5e6)
        self.assertEqual(metric(aggregator, "sluice_in_flight_bytes"), 0)
        for name in ("batch_workers", "wnd_max_packets", "slot_seconds"):
            self.assertGreater(metric(aggregator, f"sluice_plan_{name}"), 0)

    def test_gauges_while_a_read_waits(self):
        workers = self.start_workers("--think_time", "20s")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0", "--budget", "12000", "--policy",
                                           "rolling")
        cat = subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "--timeout", "40s",
                                "data"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: metric(aggregator, "sluice_queued_calls") > 0, "calls to wait")
        self.assertGreater(metric(aggregator, "sluice_in_flight_calls"), 0)
        self.assertGreater(metric(aggregator, "sluice_in_flight_bytes"), 0)
        self.assertLessEqual(metric(aggregator, "sluice_in_flight_bytes"), 12000)
        self.assertGreater(metric(aggregator, "sluice_queued_blocks"), 0)
        self.assertEqual(metric(aggregator, 'sluice_blocks_total{outcome="cancelled"}'), 0)
        cat.kill()
        cat.wait()
        wait_until(lambda: metric(aggregator, "sluice_in_flight_bytes") == 0, "the read to be cancelled")
        self.assertEqual(metric(aggregator, "sluice_queued_calls"), 0)
        self.assertGreater(metric(aggregator, 'sluice_blocks_total{outcome="cancelled"}'), 0)
        self.assertGreater(metric(aggregator, 'sluice_calls_total{outcome="cancelled"}'), 0)

    def test_gauges_while_workers_think(self):
        workers = self.start_workers("--think_time", "20s")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0", "--policy", "grants")
        cat = subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "--block", "0", "data"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: metric(aggregator, "sluice_ungranted_calls") > 1, "requests to be out without a grant")
        self.assertEqual(metric(aggregator, "sluice_in_flight_calls"), 0)
        self.assertEqual(metric(aggregator, "sluice_ready_bytes"), 0)
        cat.kill()
        cat.wait()
        wait_until(lambda: metric(aggregator, "sluice_ungranted_calls") == 0, "the read to be cancelled")

    def test_deadlines_of_both_kinds(self):
        workers = self.start_workers("--think_time", "20s")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0", "--budget", "12000",
                                           "--block_timeout", "300ms", "--policy", "rolling")
        expected = {
            'sluice_timeouts_total{kind="rpc_deadline"}': None,
            'sluice_timeouts_total{kind="queue_deadline"}': None,
            'sluice_calls_total{outcome="rpc_deadline"}': None,
            'sluice_calls_total{outcome="expired"}': None,
            'sluice_blocks_total{outcome="deadline"}': 1,
            "sluice_timer_lateness_seconds_count": None,
        }
        self.moved(aggregator, expected,
                   lambda: self.assertEqual(self.cat(aggregator, "--block", "0", "data").returncode, 1))

    def test_faults_of_a_worker_with_and_without_replicas(self):
        self.stripe("twice", self.source, "--replicas", "2")
        aggregator = self.start_both("--admin", "127.0.0.1:0")
        for name in ("data", "twice"):
            with open(self.path(f"stripes/worker-0000/{name}/stripe-0"), "r+b") as stripe:
                stripe.write(b"spoilt")
        os.remove(self.path("stripes/worker-0001/data/stripe-0"))
        self.moved(aggregator, {
            'sluice_goodput_bytes_total{worker_kind="replica"}': SRU_BYTES,
            'sluice_calls_total{outcome="corrupt"}': 1,
            "sluice_call_retries_total": None,
            'sluice_blocks_total{outcome="complete"}': 1,
        }, lambda: self.assertEqual(self.cat(aggregator, "--block", "0", "twice").returncode, 0))
        self.moved(aggregator, {
            'sluice_blocks_total{outcome="partial"}': 1,
            'sluice_calls_total{outcome="rpc_error"}': None,
            'sluice_block_coverage_ratio_bucket{le="0.5"}': 1,
        }, lambda: self.assertEqual(self.cat(aggregator, "--partial", "--block", "0", "data").returncode, 3))
        self.moved(aggregator, {'sluice_blocks_total{outcome="failed"}': 1},
                   lambda: self.assertEqual(self.cat(aggregator, "--block", "0", "data").returncode, 1))

    def test_a_full_queue(self):
        workers = self.start_workers("--think_time", "20s")
        aggregator = self.start_aggregator(workers.addresses, "--admin", "127.0.0.1:0", "--budget", "12000",
                                           "--queue_limit", "4", "--policy", "rolling")
        flags = [program("sluice-cat"), "--aggregator", aggregator.addresses[0], "--block", "0", "data"]
        first = subprocess.Popen(flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: metric(aggregator, "sluice_queued_calls") > 0, "calls to wait")
        result = self.cat(aggregator, "--block", "1", "data")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"queue_limit is 4", result.stderr)
        self.assertEqual(metric(aggregator, 'sluice_blocks_total{outcome="refused"}'), 1)
        first.kill()
        first.wait()


class MemoryTest(ServingTest):
    """Large files must be read in bounded memory. Needs a gigabyte of disk; SLUICE_MEMORY_TEST_MB makes the file
    smaller."""

    GROWTH = 150 << 20

    def test_slow_and_fast_clients_of_a_large_file(self):
        if sanitized("sluice-aggregator"):
            self.skipTest("AddressSanitizer keeps freed memory back")
        total = int(os.environ.get("SLUICE_MEMORY_TEST_MB", "1024")) << 20
        with open(self.path("input"), "wb") as file:
            file.truncate(total)
        result = run("sluice-stripe", "--out", self.path("stripes"), "--workers", str(WORKERS), "--sru", "256kb",
                     "--name", "large", self.path("input"))
        self.assertEqual(result.returncode, 0, result.stderr)
        workers = self.start_workers()
        aggregator = self.start_aggregator(workers.addresses, "--capacity", "10gbit", "--buffer", "4mb")
        self.assertEqual(self.cat(aggregator, "data").returncode, 0)
        before = {server: resident_bytes(server.process) for server in (workers, aggregator)}
        most = dict(before)
        done = threading.Event()

        def watch():
            while not done.wait(0.05):
                for server in most:
                    most[server] = max(most[server], resident_bytes(server.process))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.read_slowly_and_go(aggregator, total // 10)
            fast = subprocess.run([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "large"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300, check=False)
            self.assertEqual((fast.returncode, fast.stderr), (0, b""))
        finally:
            done.set()
            watcher.join()
        for server, name in ((workers, "worker"), (aggregator, "aggregator")):
            growth = most[server] - before[server]
            print(f"{name}: {before[server] >> 20} MiB, at most {growth >> 20} MiB more", file=sys.stderr)
            self.assertLess(growth, self.GROWTH, name)

    def read_slowly_and_go(self, aggregator, wanted):
        with subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "large"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as cat:
            got = 0
            while got < wanted:
                got += len(cat.stdout.read(1 << 20))
                time.sleep(0.05)  # slows the reader down; the test does not wait for an event
            cat.stdout.close()
            self.assertNotEqual(cat.wait(timeout=PATIENCE), 0)


if __name__ == "__main__":
    main()
