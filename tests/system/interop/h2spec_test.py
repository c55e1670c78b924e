#!/usr/bin/env python3
"""Runs h2spec, which checks an HTTP/2 server case by case, against a listener of sluice-proxy: h2spec_test.py BUILD.
Passes if exactly the cases of _DEVIATIONS fail. Exits with code 77 and prints the reason if the machine lacks a
requirement.

h2spec requests pages. The proxy refuses requests other than gRPC by their headers, before the request has ended.
Many cases send their fault after the headers of a request, so the timing would decide whether the stream is still
open. Therefore a relay collects the bytes from h2spec until it waits for a response, and forwards them in one piece.
"""

import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_H2SPEC = _REPOSITORY / "build/interop-servers/h2spec"
_SKIP = 77
_PATIENCE_S = 60
_QUIET_S = 0.05  # after this silence h2spec is waiting
_PARTS = ["generic", "hpack", "http2/3", "http2/4", "http2/5", "http2/6", "http2/7", "http2/8"]  # run at the same time
_CASES = 145

_NO_BODY = "The case waits for DATA, and a refusal of gRPC has none: its status is in the headers."
_IDLE_RESET = (
    "On purpose (IdleResetFilter): clients on gRPC's C core send such resets for calls that are cancelled before their "
    "headers leave (grpc/grpc issue 19655), and no other call of the connection shall suffer from that."
)
_CLOSED = (
    "nghttp2 ignores frames of streams that have closed, which it keeps no memory of. RFC 7540 wanted an error; by RFC "
    "9113, section 5.1, it is no more than allowed."
)
_PRIORITY = (
    "The proxy says SETTINGS_NO_RFC7540_PRIORITIES, and nghttp2 ignores PRIORITY frames then without a look at them. "
    "They are deprecated (RFC 9113, section 5.3)."
)
_DEVIATIONS = {
    ("generic/2", "Sends a WINDOW_UPDATE frame on half-closed (remote) stream"): _NO_BODY,
    ("generic/2", "Sends a PRIORITY frame on half-closed (remote) stream"): _NO_BODY,
    ("http2/3.5", "Sends invalid connection preface"): (
        "The listener speaks HTTP/1.1 as well, for CONNECT: it closes the connection, but answers before, which "
        "h2spec takes for a broken frame."
    ),
    ("http2/5.1", "idle: Sends a RST_STREAM frame"): _IDLE_RESET,
    ("http2/6.4", "Sends a RST_STREAM frame on a idle stream"): _IDLE_RESET,
    ("http2/5.1", "closed: Sends a DATA frame after sending RST_STREAM frame"): _CLOSED,
    ("http2/5.1", "closed: Sends a HEADERS frame after sending RST_STREAM frame"): _CLOSED,
    ("http2/5.1", "closed: Sends a DATA frame"): _CLOSED,
    ("http2/5.1", "closed: Sends a HEADERS frame"): _CLOSED,
    ("http2/5.1.1", "Sends stream identifier that is numerically smaller than previous"): (
        "nghttp2 ignores the request: it cannot tell its headers from trailers that were on their way when it reset a "
        "stream, and does not end a connection for these."
    ),
    ("http2/5.1.2", "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded"): (
        "It is not exceeded: the proxy refuses each of these requests at once, which ends its stream."
    ),
    ("http2/5.3.1", "Sends PRIORITY frame that depend on itself"): _PRIORITY,
    ("http2/6.3", "Sends a PRIORITY frame with 0x0 stream identifier"): _PRIORITY,
}


class Relay:
    """A port that leads to the proxy, with one thread for each connection, until the process ends."""

    def __init__(self, address):
        self._address = address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client):
        with client, socket.create_connection(self._address) as proxy:
            proxy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            held = b""
            while True:
                ready, _, _ = select.select([client, proxy], [], [], _QUIET_S if held else None)
                try:
                    if client in ready:
                        read = client.recv(1 << 16)
                        if not read:
                            return
                        held += read
                    elif not ready:
                        proxy.sendall(held)
                        held = b""
                    if proxy in ready:
                        read = proxy.recv(1 << 16)
                        if not read:
                            return
                        client.sendall(read)
                except OSError:
                    return  # one side has closed, and the `with` statement closes the other


def started_proxy(build, folder):
    ready = folder / "ready"
    argv = [pathlib.Path(build) / "bin/sluice-proxy", "--listen", "127.0.0.1:0", "--ready_file", ready]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + _PATIENCE_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the proxy does not serve: {(folder / 'log').read_text()}")
        time.sleep(0.01)
    host, port = ready.read_text().split()[0].rsplit(":", 1)
    return process, (host, int(port))


def run_h2spec(port, folder):
    """Returns the failure of each case, or None if it passed or was skipped."""
    reports = {part: folder / f"{part.replace('/', '-')}.xml" for part in _PARTS}
    running = []
    for part, report in reports.items():
        argv = [_H2SPEC / "h2spec", part, "-h", "127.0.0.1", "-p", str(port), "-P", "/service/Method", "-j", report]
        running.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL))
    for process in running:
        process.wait(_PATIENCE_S)
    outcomes = {}
    for report in reports.values():
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            bad = [node.text or "" for node in case if node.tag in ("failure", "error")]
            outcomes[(case.get("package"), case.get("classname"))] = bad[0] if bad else None
    return outcomes


def judge(outcomes):
    failed = {case: text for case, text in outcomes.items() if text is not None}
    complaints = [f"{': '.join(case)}\n{text}" for case, text in failed.items() if case not in _DEVIATIONS]
    complaints += [f"{': '.join(case)}: listed, and did not fail" for case in _DEVIATIONS if case not in failed]
    if len(outcomes) != _CASES:
        complaints.append(f"h2spec ran {len(outcomes)} cases, not {_CASES}")
    expected = len(failed.keys() & _DEVIATIONS.keys())
    print(f"{len(outcomes)} cases, {len(failed)} failed, {expected} of them expected to:")
    for (section, case), why in _DEVIATIONS.items():
        print(f"  {section}: {case}\n    {why}")
    for complaint in complaints:
        print(f"FAILED: {complaint}")
    return not complaints


def main(build):
    if not (_H2SPEC / "version").exists():
        print("SKIPPED: h2spec is not installed; run tests/install-languages")
        return _SKIP
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        proxy, address = started_proxy(build, folder)
        try:
            conforms = judge(run_h2spec(Relay(address).port, folder))
            proxy.terminate()
            ended_well = proxy.wait(_PATIENCE_S) == 0
            if not ended_well:
                print(f"FAILED: the proxy ended with {proxy.returncode}:\n{(folder / 'log').read_text()}")
            return 0 if conforms and ended_well else 1
        finally:
            proxy.kill()
            proxy.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
