"""Stock Python clients that call a worker through a proxy while a test does something to the proxy."""

import collections
import threading

from programs import METHOD, PATIENCE_S, REQUEST
from stock_grpc import grpc

CLIENTS = 8
_CALLS = 50  # of each client, before and after each event


class Clients:
    """Clients that call without a pause until the load ends. Subclasses define _run, which calls until _ends and counts
    each call."""

    def __init__(self, clients, calls):
        self._calls = calls
        self._changed = threading.Condition()
        self._done = [0] * clients
        self._ends = False
        self.errors = collections.Counter()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Ends the load. Must be called before its server ends."""
        self._ends = True
        for thread in self._threads:
            thread.join()

    def await_calls(self):
        """Waits until each client has made a number of more successful calls."""
        with self._changed:
            wanted = [done + self._calls for done in self._done]
            reached = lambda: all(done >= want for done, want in zip(self._done, wanted))  # noqa: E731
            if not self._changed.wait_for(reached, PATIENCE_S):
                raise AssertionError(f"calls do not go on: {self._done}, errors: {self.errors}")

    def _count(self, client):
        with self._changed:
            self._done[client] += 1
            self._changed.notify_all()

    def _count_error(self, error):
        with self._changed:
            self.errors[error] += 1


class Load(Clients):
    """Each client has its own connection, and waits for a server."""

    def __init__(self, target, worker):
        super().__init__(CLIENTS, _CALLS)
        self._target, self._worker = target, worker

    def _run(self, client):
        options = [("grpc.default_authority", self._worker), ("grpc.use_local_subchannel_pool", 1),
                   ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]  # fmt: skip
        with grpc.insecure_channel(self._target, options=options) as channel:
            answer = channel.unary_unary(METHOD)
            while not self._ends:
                try:
                    answer(REQUEST, timeout=PATIENCE_S, wait_for_ready=True)
                except grpc.RpcError as error:
                    self._count_error(error.code())
                else:
                    self._count(client)
