#!/usr/bin/env python3
"""The policy of a sluice-proxy changes by SIGHUP, while stock Python clients call and tunnels carry bytes:
policy_test.py BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import contextlib
import json
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from call_load import Load
from programs import started, worker

_PATIENCE = 30  # seconds that a test waits for an expected event
_TUNNELS = 4
_ANSWER = b"x" * 200_000
_BUILD = None


def serve(listener):
    """Answers each byte of each connection with _ANSWER."""

    def answer(connection):
        with connection, contextlib.suppress(OSError):
            while connection.recv(1):
                connection.sendall(_ANSWER)

    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


class Tunnels:
    """Tunnels that are open during the whole test, and carry one response after the other."""

    def __init__(self, path, target):
        self._ends = False
        self.answers = [0] * _TUNNELS
        self.errors = []
        self._threads = [threading.Thread(target=self._use, args=(i, path, target)) for i in range(_TUNNELS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        for thread in self._threads:
            thread.join()

    def await_answers(self):
        """Waits until each tunnel has carried two more responses. The first of them may have begun before."""
        wanted = [answers + 2 for answers in self.answers]
        deadline = time.monotonic() + _PATIENCE
        while any(answers < want for answers, want in zip(self.answers, wanted)):
            if self.errors or time.monotonic() > deadline:
                raise AssertionError(f"tunnels do not go on: {self.answers}, errors: {self.errors}")
            time.sleep(0.01)

    def _use(self, tunnel, path, target):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(_PATIENCE)
                client.connect(path)
                client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(1)
                assert head.startswith(b"HTTP/1.1 200 "), head
                while not self._ends:
                    client.sendall(b"?")
                    left = len(_ANSWER)
                    while left > 0:
                        data = client.recv(left)
                        assert data and data.strip(b"x") == b"", "the tunnel ended, or carried a wrong byte"
                        left -= len(data)
                    self.answers[tunnel] += 1
        except (AssertionError, OSError) as error:
            self.errors.append(error)


class PolicyTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._worker = stack.enter_context(worker(_BUILD, self._folder))
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, args=(self._listener,), daemon=True).start()

    # A packet of loopback has 64 KB, and the windows of tunnels stay as wide once `unscheduled` has widened them. Each
    # fills the buffer alone, and calls must have their turns between them.
    def _write(self, policy):
        config = {"listen": f"unix:{self._folder}/socket", "admin": "127.0.0.1:0", "workers": ["127.0.0.0/8"],
                  "link": {"capacity": "1gbit", "buffer": "64kb"}, "schedule": {"policy": policy},
                  "reload_interval": "0s", "log_level": "warning"}  # fmt: skip
        (self._folder / "config.json").write_text(json.dumps(config))

    def _metric(self, name):
        with urllib.request.urlopen(f"http://{self._admin}/metrics", timeout=_PATIENCE) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        raise AssertionError(f"no sample {name}")

    def _await(self, name, value):
        deadline = time.monotonic() + _PATIENCE
        while self._metric(name) != value:
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {_PATIENCE} s for {name} = {value}")
            time.sleep(0.01)

    def _in_force(self, policy):
        self._await(f'sluice_schedule_policy{{policy="{policy}"}}', 1)

    def _switch(self, proxy, policy):
        self._write(policy)
        proxy.send_signal(signal.SIGHUP)
        self._in_force(policy)

    def _proxy(self, log):
        ready = self._folder / "proxy"
        return started([_BUILD / "bin/sluice-proxy", "--config", self._folder / "config.json", "--ready-file", ready],
                       ready, stderr=log)  # fmt: skip

    def test_no_call_and_no_tunnel_fails_while_the_policy_changes(self):
        path = f"{self._folder}/socket"
        target = "127.0.0.1:%d" % self._listener.getsockname()[1]
        for first, then in (("unscheduled", "grants"), ("grants", "unscheduled"), ("rolling", "unscheduled")):
            self._write(first)
            with self._proxy(None) as (proxy, addresses):
                self._admin = addresses[-1]
                self._in_force(first)
                with Load(f"unix:{path}", self._worker) as load, Tunnels(path, target) as tunnels:
                    for policy in (then, first) * 3:
                        load.await_calls()
                        tunnels.await_answers()
                        self._switch(proxy, policy)
                    load.await_calls()
                    tunnels.await_answers()
                self.assertEqual((load.errors, tunnels.errors), ({}, []))
                self._await("sluice_in_flight_bytes", 0)
                self.assertEqual(self._metric('sluice_config_reloads_total{outcome="applied"}'), 6)

    def test_a_policy_that_is_not_known_or_not_possible_changes_nothing(self):
        self._write("rolling")
        with open(self._folder / "log", "w+", encoding="utf-8") as log, self._proxy(log) as (proxy, addresses):
            self._admin = addresses[-1]
            for count, (policy, reason) in enumerate((("fastest", r'schedule.policy: policy: \"fastest\" is not known'),
                                                      ("batches", "policy is batches"))):  # fmt: skip
                self._write(policy)
                proxy.send_signal(signal.SIGHUP)
                self._await('sluice_config_reloads_total{outcome="invalid"}', count + 1)
                self.assertIn(reason, (self._folder / "log").read_text(encoding="utf-8"))
                self._in_force("rolling")
            self.assertEqual(self._metric('sluice_config_reloads_total{outcome="applied"}'), 0)
            self._switch(proxy, "grants")


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
