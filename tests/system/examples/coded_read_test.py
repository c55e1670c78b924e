#!/usr/bin/env python3
"""Tests examples/coded-read: coded_read_test.py FOLDER_OF_PROGRAMS. Reads an object in a 4+2 erasure code from six servers,
of which two are gone, slow or wrong."""

import contextlib
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

_PROGRAMS = pathlib.Path()
_PATIENCE = 120  # seconds that a test waits for an expected event
_WORKERS = 6
_DELAY_MS = 300


class Worker:
    """The server of one fragment of a file."""

    def __init__(self, file, number, delay_ms=0, rotten=False):
        argv = [_PROGRAMS / "coded-server", file, str(number), str(delay_ms), *(["rotten"] if rotten else [])]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._process.stdout.readline().strip()

    def stop(self):
        if self._process.poll() is None:
            self._process.communicate(timeout=_PATIENCE)  # it serves until its input ends

    def kill(self):
        self._process.kill()
        self._process.communicate(timeout=_PATIENCE)


class CodedReadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls._object = random.Random(1).randbytes(8_000_000 + 77)
        cls._file = pathlib.Path(cls._folder.name) / "object"
        cls._file.write_bytes(cls._object)

        cls._older = pathlib.Path(cls._folder.name) / "older"
        cls._older.write_bytes(bytes(byte ^ 1 for byte in cls._object))

    @contextlib.contextmanager
    def _workers(self, delays_ms=(0,) * _WORKERS, rotten=(), older=()):
        with contextlib.ExitStack() as stack:
            workers = []
            for number, delay_ms in enumerate(delays_ms):
                file = self._older if number in older else self._file
                workers.append(Worker(file, number, delay_ms, number in rotten))
                stack.callback(workers[-1].stop)
            yield workers

    def _fail(self, workers):
        """Returns the error of a read that fails."""
        argv = [_PROGRAMS / "coded_read", *(worker.address for worker in workers)]
        read = subprocess.run(argv, capture_output=True, timeout=_PATIENCE)
        self.assertEqual(read.returncode, 1)
        return read.stderr.decode()

    def _read(self, workers):
        """Returns the 99th percentile of the stripes, in ms, if every byte is right."""
        read = subprocess.run([_PROGRAMS / "coded_read", *(worker.address for worker in workers)], capture_output=True,
                              timeout=_PATIENCE, check=True)
        self.assertTrue(read.stdout == self._object, f"{len(read.stdout)} bytes")
        return float(re.search(r"p99 ([\d.]+) ms", read.stderr.decode()).group(1))

    def test_any_two_workers_may_be_gone(self):
        for gone in ((0, 1), (2, 5), (4, 5)):
            with self.subTest(gone=gone), self._workers() as workers:
                for number in gone:
                    workers[number].kill()
                self._read(workers)

    def test_a_slow_worker_delays_nothing(self):
        with self._workers() as workers:
            healthy = self._read(workers)
        for slow in ((1,), (0, 3)):
            delays = [_DELAY_MS if number in slow else 0 for number in range(_WORKERS)]
            with self.subTest(slow=slow), self._workers(delays) as workers:
                p99 = self._read(workers)
                print(f"p99 {p99:.2f} ms with {len(slow)} slow, {healthy:.2f} ms without: {p99 / healthy:.2f} times")
                # On a busy machine a read takes long without a slow worker, too.
                self.assertLess(p99, min(max(_DELAY_MS / 2, 1.5 * healthy), 0.95 * _DELAY_MS))

    def test_three_workers_gone_are_an_error(self):
        with self._workers() as workers:
            for number in (0, 2, 4):
                workers[number].kill()
            self.assertIn("version: UNAVAILABLE", self._fail(workers))

    def test_any_two_workers_may_be_wrong(self):
        for wrong in ({"rotten": (0,)}, {"rotten": (5,)}, {"older": (0, 1)}, {"rotten": (2,), "older": (4,)}):
            # The others are slower: each read would take the wrong fragments.
            delays = [0 if number in sum(wrong.values(), ()) else 1 for number in range(_WORKERS)]
            with self.subTest(wrong), self._workers(delays, **wrong) as workers:
                self._read(workers)

    def test_three_wrong_workers_are_an_error(self):
        with self._workers(rotten=(0, 2, 4)) as workers:
            self.assertIn("stripe 0: DATA_LOSS", self._fail(workers))
        with self._workers(older=(1, 3, 5)) as workers:
            self.assertIn("version: DATA_LOSS: no version of the object has 4 fragments", self._fail(workers))

    def test_workers_in_a_wrong_order_are_an_error(self):
        with self._workers() as workers:
            workers[0], workers[1] = workers[1], workers[0]
            self.assertIn("do not match the SHA-256", self._fail(workers))


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
