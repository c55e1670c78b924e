"""An aggregator over real workers on loopback, for Python tests of the built programs."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

PROGRAMS = ""
PATIENCE = 60  # seconds that a test waits for an expected event

WORKERS = 4
SRU_BYTES = 10000


def program(name):
    return os.path.join(PROGRAMS, name)


def run(name, *flags, **options):
    return subprocess.run([program(name), *flags], capture_output=True, timeout=PATIENCE, check=False, **options)


def wait_until(condition, what):
    """Waits for a condition that only another process can make true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.01)


class Server:
    """A server program on free ports of loopback, from its ready file to its end."""

    def __init__(self, folder, name, *flags):
        ready = os.path.join(folder, f"{name}-{time.monotonic_ns()}.ready")
        self.log = open(f"{ready}.log", "w+b")
        self.process = subprocess.Popen([program(name), "--ready_file", ready, *flags], stdout=self.log, stderr=self.log)
        wait_until(lambda: os.path.exists(ready) or self.process.poll() is not None, f"{name} to serve")
        if self.process.poll() is not None:
            raise AssertionError(self.text())
        with open(ready, encoding="utf-8") as lines:
            self.addresses = lines.read().split()

    def text(self):
        self.log.seek(0)
        return self.log.read().decode()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


class ServingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-serving-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.source = random.Random(1).randbytes(10 * WORKERS * SRU_BYTES + 12345)
        self.stripe("data", self.source)

    def path(self, name):
        return os.path.join(self.folder, name)

    def stripe(self, name, data, *flags):
        with open(self.path("input"), "wb") as file:
            file.write(data)
        result = run("sluice-stripe", "--out", self.path("stripes"), "--workers", str(WORKERS), "--sru",
                     str(SRU_BYTES), "--name", name, *flags, self.path("input"))
        self.assertEqual(result.returncode, 0, result.stderr)

    def start(self, name, *flags):
        server = Server(self.folder, name, *flags)
        self.addCleanup(server.close)
        return server

    def start_workers(self, *flags, count=WORKERS):
        listen = ",".join(["127.0.0.1:0"] * count)
        return self.start("sluice-worker", "--data", self.path("stripes"), "--listen", listen, *flags)

    def start_aggregator(self, workers, *flags, listen="127.0.0.1:0"):
        return self.start("sluice-aggregator", "--listen", listen, "--workers", ",".join(workers[:WORKERS]), *flags)

    def start_both(self, *flags):
        workers = self.start_workers()
        return self.start_aggregator(workers.addresses, *flags)

    def cat(self, aggregator, *flags):
        return run("sluice-cat", "--aggregator", aggregator.addresses[0], *flags)


@dataclasses.dataclass
class Answer:
    text: str
    headers: dict


def fetch(server, path):
    """Fetches a path from the admin server, which is the last address in every ready file."""
    with urllib.request.urlopen(f"http://{server.addresses[-1]}{path}", timeout=PATIENCE) as answer:
        return Answer(answer.read().decode(), dict(answer.headers))


def metric(aggregator, name):
    """Returns the value of a sample. `name` includes its labels as in the text."""
    for line in fetch(aggregator, "/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no sample {name}")


def main():
    """Runs a test script: SCRIPT FOLDER_OF_THE_PROGRAMS [unittest arguments]."""
    global PROGRAMS
    PROGRAMS = sys.argv.pop(1)
    unittest.main()
