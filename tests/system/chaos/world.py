"""The programs of a chaos run, on loopback addresses of a network namespace of their own: workers with names, a mid-level
aggregator over them, an aggregator over it, a proxy, and sluice-link, which divides the link among the three. mTLS is
everywhere, and the certificates can be replaced."""

import json
import mmap
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

from certificates import Authority, Mounted
from name_server import NameServer

PATIENCE_S = 30
WORKERS = 4
FILE, PART = "data", "data.w0000.s0"  # the striped file, and the part of it that the mid-level aggregator has
AGGREGATOR, MID_LEVEL, PROXY = "127.0.0.1:7500", "127.0.0.1:7501", "127.0.0.1:7443"
PORT, BYTES_PORT = 7000, 9000  # of a worker, and of a server that speaks another protocol


def name_of(worker):
    return f"w{worker}.chaos"


class Program:
    """A program that is started again and again with the same flags. If it ends by itself, that is a complaint."""

    def __init__(self, world, name, argv, admin, env=None):
        self.name = name
        self.admin = admin
        self.process = None
        self.restarts = -1
        self._world = world
        self._argv = argv
        self._env = {**os.environ, **(env or {})}
        self._log = open(world.folder / f"{name}.log", "ab")

    def start(self, wait=True):
        ready = self._world.folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        self.restarts += 1
        argv = [str(word) for word in (*self._argv(), "--ready-file", ready)]
        self.process = subprocess.Popen(argv, stdout=self._log, stderr=self._log, env=self._env)
        deadline = time.monotonic() + PATIENCE_S
        while wait and not ready.exists():
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} does not serve within {PATIENCE_S} s")
            time.sleep(0.01)

    def check(self):
        if self.process.poll() is not None:
            text = (self._world.folder / f"{self.name}.log").read_text(errors="replace")
            raise AssertionError(f"{self.name} ended by itself with {self.process.returncode}: {text[-2000:]}")

    def kill(self):
        self.check()
        self.process.kill()
        self.process.wait()

    def terminate(self):
        """Ends it as a supervisor does. It must end in time, with code 0."""
        self.check()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        if code != 0:
            raise AssertionError(f"{self.name} ended with {code} after SIGTERM")

    def send(self, signum):
        self.check()
        self.process.send_signal(signum)

    def limit_descriptors(self, spare):
        """Lets it have only as many descriptors as it has, and `spare` more. None: no limit."""
        self.check()
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        # A new descriptor has the lowest free number.
        soft = hard if spare is None else len(self.descriptors()) + spare
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def descriptors(self):
        return os.listdir(f"/proc/{self.process.pid}/fd")

    def figures(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().split()
        value = lambda name: int(status[status.index(name) + 1])  # noqa: E731
        return {"rss_bytes": 1024 * value("VmRSS:"), "threads": value("Threads:"), "descriptors": len(self.descriptors())}

    def metrics(self):
        values = {}
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=PATIENCE_S) as page:
            for line in page.read().decode().splitlines():
                if not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    values[name.split("{")[0]] = values.get(name.split("{")[0], 0) + float(value)
        return values

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.admin}/readyz", timeout=1):
                return True
        except OSError:
            return False

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()


class World:
    def __init__(self, build, folder, seed):
        self.build, self.folder = build, folder
        self.data = random.Random(seed).randbytes(600_000)
        self.networks = [1] * WORKERS  # a worker is at 127.0.NETWORK.NUMBER
        self.names = NameServer("127.0.0.53")
        self.files = Mounted(str(folder))
        self._authority = Authority(str(folder), "authority")
        self._certificates = 0
        self._buffer = "256kb"
        self.rotate()
        self._stripe()
        self.programs = {}
        self._disks = []
        for worker in range(WORKERS):
            self.names.set(name_of(worker), self.address(worker))
            self._disks.append(self._disk(worker))
            self._add(f"worker-{worker}", lambda worker=worker: self._worker_argv(worker), f"127.0.1.{worker + 1}:9100", {
                "LD_PRELOAD": str(build / "tests/chaos_disk_faults.so"), "CHAOS_DISK": str(folder / f"disk-{worker}")})  # fmt: skip
        self._add("link", lambda: [build / "bin/sluice-link", "--socket", folder / "link.sock", "--capacity", "1gbit",
                                   "--buffer", "256kb", "--admin", "127.0.0.1:9101"], "127.0.0.1:9101")  # fmt: skip
        self._add("mid-level", lambda: self._aggregator("mid-level"), "127.0.0.1:9102")
        self._add("aggregator", lambda: self._aggregator("aggregator"), "127.0.0.1:9103")
        self._add("proxy", lambda: [build / "bin/sluice-proxy", "--config", folder / "proxy.json"], "127.0.0.1:9104")
        self.write_configs()

    def _add(self, name, argv, admin, env=None):
        self.programs[name] = Program(self, name, argv, admin, env)

    def start(self):
        for program in self.programs.values():
            program.start()

    def close(self):
        for program in self.programs.values():
            program.close()
        self.names.close()

    def address(self, worker):
        return f"127.0.{self.networks[worker]}.{worker + 1}"

    # --- What faults change.

    def rotate(self):
        """Replaces the certificate of all programs."""
        self._certificates += 1
        hosts = ["DNS:localhost", "IP:127.0.0.1", *(f"DNS:{name_of(worker)}" for worker in range(WORKERS))]
        identity = self._authority.issue(f"own-{self._certificates}", ",".join(hosts))
        self.files.install([self._authority], identity)

    def move(self, worker):
        """Restarts a worker at another address, without a gap in its name."""
        program = self.programs[f"worker-{worker}"]
        program.terminate()
        self.networks[worker] = 3 - self.networks[worker]
        program.start()
        self.names.set(name_of(worker), self.address(worker))

    def set_disk(self, worker, fault):
        self._disks[worker][:] = struct.pack("i", fault)

    def reload(self, buffer):
        self._buffer = buffer
        self.write_configs()

    # --- Files and flags.

    def _stripe(self):
        (self.folder / "input").write_bytes(self.data)
        subprocess.run([self.build / "bin/sluice-stripe", "--out", self.folder / "stripes", "--workers", f"1x{WORKERS}", "--sru",
                        "5000", "--name", FILE, "--replicas", "1x2", self.folder / "input"],
                       check=True, capture_output=True)  # fmt: skip

    def stripe(self, worker):
        """The bytes that a worker has of the file."""
        return (self.folder / f"stripes/mla-0000/worker-{worker:04}/{PART}/stripe-0").read_bytes()

    def _disk(self, worker):
        path = self.folder / f"disk-{worker}"
        path.write_bytes(bytes(4))
        with open(path, "r+b") as file:
            return mmap.mmap(file.fileno(), 4)

    def own_files(self):
        """The files of one installation: a tool reads each of them once."""
        folder = pathlib.Path(self.files.ca).parent.resolve()
        return folder / "ca.pem", folder / "own.pem", folder / "own.key"

    def _own(self):
        return ["--tls_certificate", self.files.certificate, "--tls_key", self.files.key]

    def _worker_argv(self, worker):
        return [self.build / "bin/sluice-worker", "--data", self.folder / "stripes/mla-0000", "--listen",
                f"{self.address(worker)}:{PORT}", "--admin", f"127.0.1.{worker + 1}:9100", *self._own(), "--tls_client_ca",
                self.files.ca, "--drain_timeout", "2s"]  # fmt: skip

    def _aggregator(self, name):
        return [self.build / "bin/sluice-aggregator", "--config", self.folder / f"{name}.json"]

    def _write(self, name, fields):
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(fields))
        os.replace(new, self.folder / f"{name}.json")

    def write_configs(self):
        own = {"certificate": self.files.certificate, "key": self.files.key, "ca": self.files.ca}
        shared = {"link": {"capacity": "1gbit", "buffer": self._buffer}, "reload_interval": "100ms", "drain_timeout": "2s",
                  "shared_link": {"socket": str(self.folder / "link.sock")}}  # fmt: skip
        tree = {**shared, "tls": {**own, "client_ca": self.files.ca}, "connect_timeout": "200ms", "sru_timeout": "3s",
                "block_timeout": "10s"}  # fmt: skip
        workers = [f"{name_of(worker)}:{PORT}" for worker in range(WORKERS)]
        self._write("mid-level", {**tree, "listen": MID_LEVEL, "admin": "127.0.0.1:9102", "workers": workers,
                                  "mid_level": {"cache": "100kb"}})  # fmt: skip
        self._write("aggregator", {**tree, "listen": AGGREGATOR, "admin": "127.0.0.1:9103", "workers": [MID_LEVEL]})
        self._write("proxy", {
            **shared, "listen": [f"tls:{PROXY}", f"unix:{self.folder}/proxy.sock"], "admin": "127.0.0.1:9104", "tls": own,
            "workers": [f"*.chaos:{PORT}", f"*.chaos:{BYTES_PORT}", "127.0.0.0/8"], "worker_header": "x-worker",
            "listener_tls": {"certificate": own["certificate"], "key": own["key"], "client_ca": own["ca"]}})  # fmt: skip
