#!/usr/bin/env python3
"""A sluice-proxy ends under load, and another one replaces it, while stock Python clients call: restart_test.py
BUILD. Exits with code 77 and prints the reason if grpcio is missing."""

import collections
import contextlib
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

from programs import METHOD, REQUEST, started, worker
from stock_grpc import grpc

_PATIENCE = 30  # seconds that a test waits for an expected event
_CLIENTS = 8
_CALLS = 50  # of each client, before and after each event
_BUILD = None


class Load:
    """Clients that call without a pause until the load ends, each over its own connection."""

    def __init__(self, target, worker):
        self._changed = threading.Condition()
        self._done = [0] * _CLIENTS
        self._ends = False
        self.errors = collections.Counter()
        self._threads = [threading.Thread(target=self._call, args=(i, target, worker)) for i in range(_CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Ends the load. Must be called before its proxy ends."""
        self._ends = True
        for thread in self._threads:
            thread.join()

    def await_calls(self):
        """Waits until each client has made _CALLS more successful calls."""
        with self._changed:
            wanted = [done + _CALLS for done in self._done]
            reached = lambda: all(done >= want for done, want in zip(self._done, wanted))  # noqa: E731
            if not self._changed.wait_for(reached, _PATIENCE):
                raise AssertionError(f"calls do not go on: {self._done}, errors: {self.errors}")

    def _call(self, client, target, worker):
        options = [("grpc.default_authority", worker), ("grpc.use_local_subchannel_pool", 1),
                   ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]  # fmt: skip
        with grpc.insecure_channel(target, options=options) as channel:
            answer = channel.unary_unary(METHOD)
            while not self._ends:
                try:
                    answer(REQUEST, timeout=_PATIENCE, wait_for_ready=True)
                except grpc.RpcError as error:
                    self.errors[error.code()] += 1
                    continue
                with self._changed:
                    self._done[client] += 1
                    self._changed.notify_all()


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
                self.assertLessEqual(sum(load.errors.values()), 2 * _CLIENTS)
                load.end()


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
