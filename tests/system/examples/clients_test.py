#!/usr/bin/env python3
"""Tests the stock clients of examples/ with workers on loopback: clients_test.py LANGUAGE BUILD. Exits with code 77
and prints the reason if the machine lacks a requirement of the language."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_REPOSITORY / "tests/testbed"))

from sandbox import Unsupported  # noqa: E402
from stock_clients import client_command, plain_environment  # noqa: E402

_SKIP = 77
_PATIENCE = 60  # seconds that a test waits for an expected event
_WORKERS = 4
_CLIENT = []
_SERVER = []  # the ready file and the addresses follow
_JAVA_OPTS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a start that takes little CPU time
_CLOSED = "127.0.0.1:1"  # a port on which no program listens


@contextlib.contextmanager
def served(command):
    """Yields addresses of workers in one process, which must exit with code 0 at SIGTERM."""
    with tempfile.TemporaryDirectory() as folder:
        ready = pathlib.Path(folder) / "ready"
        with subprocess.Popen(command(ready, ["127.0.0.1:0"] * _WORKERS)) as process:
            try:
                deadline = time.monotonic() + _PATIENCE
                while not ready.exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise AssertionError("the workers do not serve")
                    time.sleep(0.01)
                yield ready.read_text().split()
                process.send_signal(signal.SIGTERM)
                if process.wait(_PATIENCE) != 0:
                    raise AssertionError(f"the workers ended with {process.returncode} on SIGTERM")
            finally:
                process.kill()


def cpp_workers(ready, addresses):
    return [*_SERVER, ready, *addresses]


def go_workers(ready, addresses):
    return [client_command("go")[0].with_name("worker"), "--listen", ",".join(addresses), "--ready-file", ready]


def ask(workers, *flags):
    argv = [*_CLIENT, "--workers", ",".join(workers), "--blocks", "5", "--timeout", str(_PATIENCE), *flags]
    environment = {**plain_environment(), "JAVA_OPTS": _JAVA_OPTS}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=2 * _PATIENCE, check=False)


class ClientTest(unittest.TestCase):
    def report(self, workers, *flags):
        result = ask(workers, *flags)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def test_all_blocks_come_whole(self):
        with served(cpp_workers) as workers:
            report = self.report(workers, "--response-bytes", "1000")
        self.assertEqual((report["blocks"], report["errors"], report["error_sample"]), (5, 0, ""))
        payload_mbit = 5 * _WORKERS * 1000 * 8e-6
        self.assertAlmostEqual(report["goodput_mbps"] * report["seconds"], payload_mbit, places=9)
        self.assertLessEqual(report["block_p50_ms"], report["block_p99_ms"])
        self.assertLessEqual(report["block_p99_ms"], 1e3 * report["seconds"])

    def test_workers_think_as_long_as_they_are_told_and_all_at_once(self):
        with served(cpp_workers) as workers:
            usual = self.report(workers, "--think-ms", "40")
            tail = self.report(workers, "--think-ms", "1", "--tail-ms", "60", "--tail-share", "1")
        self.assertGreaterEqual(usual["block_p50_ms"], 40)
        self.assertLess(usual["block_p50_ms"], 40 * _WORKERS)
        self.assertGreaterEqual(tail["block_p50_ms"], 60)

    def test_readers_ask_at_the_same_time(self):
        with served(cpp_workers) as workers:
            report = self.report(workers, "--think-ms", "200", "--readers", "3")
        self.assertEqual((report["blocks"], report["errors"]), (15, 0))
        self.assertLess(report["seconds"], 15 * 0.2)

    def test_a_block_with_a_lost_worker_is_an_error(self):
        with served(cpp_workers) as workers:
            report = self.report([*workers[1:], _CLOSED], "--warmup-blocks", "0")
            warmup = ask([*workers[1:], _CLOSED])
        self.assertEqual((report["blocks"], report["errors"], report["goodput_mbps"]), (0, 5, 0))
        self.assertIn("refused", report["error_sample"])
        self.assertEqual((warmup.returncode, warmup.stdout), (1, ""))
        self.assertRegex(warmup.stderr, "warm-up: .*refused")

    def test_a_block_that_takes_too_long_is_an_error(self):
        with served(cpp_workers) as workers:
            report = self.report(workers, "--think-ms", "1000", "--timeout", "0.05", "--warmup-blocks", "0")
        self.assertEqual((report["blocks"], report["errors"]), (0, 5))
        self.assertRegex(report["error_sample"].lower(), "deadline")

    def test_by_way_of_another_address(self):
        with served(cpp_workers) as workers:
            report = self.report([_CLOSED] * _WORKERS, "--via", workers[0])
        self.assertEqual((report["blocks"], report["errors"]), (5, 0))

    def test_it_starts_when_it_is_told_to(self):
        with served(cpp_workers) as workers, tempfile.TemporaryDirectory() as folder:
            start = pathlib.Path(folder) / "start"
            argv = [*_CLIENT, "--workers", ",".join(workers), "--start-file", start]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
                self.assertEqual(client.stderr.readline(), "warm\n")
                start.touch()
                output, errors = client.communicate(timeout=_PATIENCE)
        self.assertEqual((client.returncode, errors), (0, ""))
        self.assertEqual(json.loads(output)["blocks"], 20)


class GoWorkerTest(ClientTest):
    def test_the_worker_in_go(self):
        with served(go_workers) as workers:
            report = self.report(workers, "--think-ms", "20")
            tail = self.report(workers, "--tail-ms", "60", "--tail-share", "1")
        self.assertEqual((len(workers), report["blocks"], report["errors"]), (_WORKERS, 5, 0))
        self.assertGreaterEqual(report["block_p50_ms"], 20)
        self.assertGreaterEqual(tail["block_p50_ms"], 60)


def main(language, build):
    made = subprocess.run([_REPOSITORY / "examples/build-clients", language], stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode == _SKIP:
        raise Unsupported(made.stderr.strip())
    if made.returncode != 0:
        sys.exit(f"FAILED: {made.stderr}")
    _CLIENT.extend(client_command(language))
    _SERVER.append(pathlib.Path(build) / "tests/answer_server")
    case = GoWorkerTest if language == "go" else ClientTest
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Unsupported as error:
        print(f"SKIPPED: {error}")
        sys.exit(_SKIP)
