#!/usr/bin/env python3
"""A sluice-proxy ends under load, and another one replaces it, while stock Python clients call: restart_test.py
BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import contextlib
import pathlib
import signal
import sys
import tempfile
import unittest

from call_load import CLIENTS, Load
from programs import started, worker
from stock_grpc import grpc

_PATIENCE = 30  # seconds that a test waits for an expected event
_BUILD = None


class RestartTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._worker = stack.enter_context(worker(_BUILD, self._folder))

    def _proxy(self):
        ready = self._folder / "proxy"
        return started([_BUILD / "bin/sluice-proxy", "--listen", f"unix:{self._folder}/socket", "--workers", "127.0.0.0/8",
                        "--log-level", "warning", "--ready-file", ready], ready)  # fmt: skip

    def _load(self):
        return Load(f"unix:{self._folder}/socket", self._worker)

    def test_a_drain_costs_no_call(self):
        with self._proxy() as (first, _), self._load() as load:
            load.await_calls()
            first.send_signal(signal.SIGTERM)
            self.assertEqual(first.wait(_PATIENCE), 0)
            with self._proxy():
                load.await_calls()
                self.assertEqual(load.errors, {})
                load.end()

    def test_clients_of_a_proxy_that_was_killed_go_on_with_the_next(self):
        with self._proxy() as (first, _), self._load() as load:
            load.await_calls()
            first.kill()
            first.wait(_PATIENCE)
            with self._proxy():
                load.await_calls()
                self.assertLessEqual(set(load.errors), {grpc.StatusCode.UNAVAILABLE})
                # Calls in flight may fail, and calls that a client sent before it noticed the end.
                self.assertLessEqual(sum(load.errors.values()), 2 * CLIENTS)
                load.end()


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
