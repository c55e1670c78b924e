"""A flow that shares the port of the fan-outs without being part of them. It sends small requests at fixed times,
and measures each from its due time, so that a late response also counts for the requests after it.

    victim_flow.py ask HOST:PORT REPORT_FILE       until SIGTERM
"""

import contextlib
import json
import pathlib
import signal
import socket
import sys
import time

_ANSWER_BYTES = 1024
_INTERVAL_S = 0.005


class VictimFlow:
    """A victim flow to the first machine of a network, while the `with` block lasts."""

    def __init__(self, network, folder):
        self._network = network
        self._folder = folder
        self._report = folder / "victim.json"
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        from processes import Program
        from topology import AGGREGATOR

        ready = self._folder / "victim.ready"
        ready.unlink(missing_ok=True)
        address = self._network.victim_address()
        raw_incast = pathlib.Path(__file__).with_name("raw_incast.py")
        serve = [sys.executable, raw_incast, "serve", _ANSWER_BYTES, ready, address]
        ask = [sys.executable, __file__, "ask", address, self._report]
        with self._stack:
            log = self._folder / "victim-server.log"
            server = self._stack.enter_context(Program(self._network, self._network.machines[0], serve, log))
            server.wait_until_ready(ready)
            self._stack.enter_context(Program(self._network, AGGREGATOR, ask, self._folder / "victim.log"))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def report(self):
        latencies_ms = sorted(json.loads(self._report.read_text()))
        if not latencies_ms:
            raise RuntimeError("the victim flow had no answer")
        percentile = lambda share: latencies_ms[min(int(share * len(latencies_ms)), len(latencies_ms) - 1)]  # noqa: E731
        return {"victim_answers": len(latencies_ms), "victim_p50_ms": percentile(0.5), "victim_p99_ms": percentile(0.99)}


def _ask(address, report):
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    latencies_ms = []

    def end(*_):
        report.write_text(json.dumps(latencies_ms))
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    due = time.monotonic()
    while True:
        time.sleep(max(0, due - time.monotonic()))
        connection.sendall(b"?")
        got = 0
        while got < _ANSWER_BYTES:
            part = connection.recv(_ANSWER_BYTES)
            if not part:
                sys.exit("the server of the victim flow closed the connection")
            got += len(part)
        latencies_ms.append(round(1e3 * (time.monotonic() - due), 3))
        due += _INTERVAL_S


if __name__ == "__main__":
    _ask(sys.argv[2], pathlib.Path(sys.argv[3]))
