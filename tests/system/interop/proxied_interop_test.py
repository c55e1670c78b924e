#!/usr/bin/env python3
"""Runs gRPC's own interop clients through sluice-proxy, against the suite's servers: proxied_interop_test.py
LANGUAGE BUILD. See install-servers. Exits with code 77 and prints the reason if the machine lacks a requirement.

Everything runs in a network namespace with one address that is not loopback, because Go and Java use no proxy for
loopback addresses.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True
_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_REPOSITORY / "tests/testbed"))

import sandbox  # noqa: E402
from stock_clients import plain_environment  # noqa: E402

_SUITE = _REPOSITORY / "build/interop-servers"
_ADDRESS = "10.77.1.1"
_SERVER_PORTS = {"go": 7001, "java": 7002}
_ROUTE_PORTS = {"go": 7401, "java": 7402}
_LISTEN_PORT = 7400
_ADMIN_PORT = 9103
_PATIENCE_S = 60  # to wait for an expected event
_AT_ONCE = 4  # clients at the same time
_JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_JAVA_CLASSES = ["-cp", f"{_SUITE}/java/lib/*"]
# The client's first run stores its loaded classes here, so that later runs start in half the time. A JVM without
# support for the flags ignores them.
_ARCHIVE = sandbox.WORK / "client.jsa"

# Concurrent calls, as in the suite's concurrent_large_unary, which neither client has.
_CONCURRENT = "concurrent_large_unary"
_CASES = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "rpc_soak",
    "channel_soak",
    "orca_per_rpc",
    "orca_oob",
    _CONCURRENT,
]
# These are not played: pick_first_unary, which needs a name service; client_compressed_streaming, whose probe fails
# with both servers after a quarter of a minute; and the cases of credentials.
_JAVA_CASES = [
    "cacheable_unary",
    "client_compressed_unary",
    "client_compressed_unary_noprobe",
    "client_compressed_streaming_noprobe",
    "server_compressed_unary",
    "server_compressed_streaming",
    "very_large_request",
]
# Features that a server lacks. The client reports the same error with and without the proxy.
_LACKS = {
    ("go", "cacheable_unary"): "UNIMPLEMENTED: method CacheableUnaryCall not implemented",
    ("java", "cacheable_unary"): "UNIMPLEMENTED: Method grpc.testing.TestService/CacheableUnaryCall is unimplemented",
    ("go", "client_compressed_unary"): "expected INVALID_ARGUMENT",  # neither server checks expect_compressed
    ("java", "client_compressed_unary"): "expected INVALID_ARGUMENT",
    ("go", "client_compressed_unary_noprobe"): 'Decompressor is not installed for grpc-encoding "gzip"',
    ("go", "client_compressed_streaming_noprobe"): 'Decompressor is not installed for grpc-encoding "gzip"',
    ("go", "very_large_request"): "RESOURCE_EXHAUSTED: grpc: received message larger than max (10485772 vs. 4194304)",
}

_ORCA = '--service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'
_SOAK = ["--soak_per_iteration_max_acceptable_latency_ms=30000", "--soak_overall_timeout_seconds=45"]
_FLAGS = {
    "rpc_soak": ["--soak_iterations=10", *_SOAK],
    "channel_soak": ["--soak_iterations=10", *_SOAK],
    "orca_per_rpc": [_ORCA],
    "orca_oob": [_ORCA],
    _CONCURRENT: ["--test_case=rpc_soak", "--soak_iterations=100", "--soak_num_threads=20", *_SOAK],
}


def start(argv, name, serves):
    """Starts a process, and returns once its output satisfies the predicate `serves`."""
    log = sandbox.WORK / f"{name}.log"
    with open(log, "wb") as output:
        environment = {**plain_environment(), "GRPC_GO_LOG_SEVERITY_LEVEL": "info"}
        argv = [str(word) for word in argv]
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=environment)
    deadline = time.monotonic() + _PATIENCE_S
    while not serves(log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} does not serve:\n{log.read_text(errors='replace')}")
        time.sleep(0.01)
    return process


def start_servers():
    port = _SERVER_PORTS
    java = [*_JAVA, *_JAVA_CLASSES, "io.grpc.testing.integration.TestServiceServer", f"--port={port['java']}"]
    return [
        start([_SUITE / "go/server", f"--port={port['go']}"], "go", lambda log: "server listening on" in log),
        start([*java, "--use_tls=false"], "java", lambda log: "Server started on port" in log),
    ]


def start_proxy(build):
    ready = sandbox.WORK / "ready"
    argv = [build / "bin/sluice-proxy", "--ready_file", ready, "--workers", f"{_ADDRESS}/32"]
    argv += ["--listen", f"{_ADDRESS}:{_LISTEN_PORT}", "--admin", f"{_ADDRESS}:{_ADMIN_PORT}"]
    argv += ["--tunnels_to_others", "false"]
    for server, port in _ROUTE_PORTS.items():
        argv += ["--route", f"{_ADDRESS}:{port}={_ADDRESS}:{_SERVER_PORTS[server]}"]
    return start(argv, "sluice-proxy", lambda _: ready.exists())


def connections(kind):
    with urllib.request.urlopen(f"http://{_ADDRESS}:{_ADMIN_PORT}/metrics", timeout=_PATIENCE_S) as page:
        text = page.read().decode()
    return int(re.search(rf'^sluice_proxy_connections_total{{kind="{kind}"}} (\d+)$', text, re.MULTILINE)[1])


def go_client(flags, connect):
    environment = {"HTTPS_PROXY": f"http://{_ADDRESS}:{_LISTEN_PORT}"} if connect else {}
    return [_SUITE / "go_client/client", *flags], environment


def java_client(flags, connect):
    # Without these properties the client uses no proxy, so its environment needs no variables.
    properties = [f"-Dhttps.proxyHost={_ADDRESS}", f"-Dhttps.proxyPort={_LISTEN_PORT}"] if connect else []
    archive = f"-XX:{'SharedArchiveFile' if _ARCHIVE.exists() else 'ArchiveClassesAtExit'}={_ARCHIVE}"
    properties += ["-XX:+IgnoreUnrecognizedVMOptions", archive, "-Xlog:disable"]
    program = [*_JAVA, *properties, *_JAVA_CLASSES, "io.grpc.testing.integration.TestServiceClient", "--use_tls=false"]
    return [*program, *flags], {}


_CLIENTS = {"go": (go_client, _CASES), "java": (java_client, _CASES + _JAVA_CASES)}
_WAYS = {
    # The flags that lead to a server, and the kind of connection that the proxy counts.
    "connect": lambda server: ([f"--server_port={_SERVER_PORTS[server]}"], "connect"),
    "route": lambda server: ([f"--server_port={_ROUTE_PORTS[server]}"], "http2"),
    "authority": lambda server: (
        [f"--server_port={_LISTEN_PORT}", f"--server_host_override={_ADDRESS}:{_SERVER_PORTS[server]}"],
        "http2",
    ),
}


class ProxiedInteropTest(unittest.TestCase):
    language = ""

    def play(self, server, way):
        """Plays all cases of the client, a few at a time. No call may bypass the proxy or its schedule."""
        make, cases = _CLIENTS[self.language]
        where, kind = _WAYS[way](server)
        before = connections(kind)

        def run(case):
            flags = [f"--server_host={_ADDRESS}", *where, *(_FLAGS.get(case, []))]
            if case != _CONCURRENT:
                flags.append(f"--test_case={case}")
            argv, environment = make(flags, way == "connect")
            return subprocess.run(
                [str(word) for word in argv],
                env={**plain_environment(), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=2 * _PATIENCE_S,
                check=False,
            )

        played = {cases[0]: run(cases[0])}  # alone, because it may create a file for the others
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            played.update(zip(cases[1:], pool.map(run, cases[1:])))
        for case, result in played.items():
            with self.subTest(case=case):
                lacks = _LACKS.get((server, case))
                self.assertEqual(result.returncode == 0, lacks is None, result.stdout)
                if lacks:
                    self.assertIn(lacks, result.stdout)
        self.assertGreaterEqual(connections(kind) - before, len(cases))
        self.assertEqual([connections(other) for other in ("worker_tunnel", "other_tunnel", "refused")], [0, 0, 0])

    def test_go_server_by_connect(self):
        self.play("go", "connect")

    def test_java_server_by_connect(self):
        self.play("java", "connect")

    def test_go_server_by_prior_knowledge(self):
        self.play("go", "route")

    def test_java_server_by_prior_knowledge(self):
        # The Go client cannot override the authority without TLS.
        self.play("java", "route" if self.language == "go" else "authority")


def check_installed(language):
    folders = {"go", "java", "go_client"} if language == "go" else {"go", "java"}
    missing = sorted(folder for folder in folders if not (_SUITE / folder / "version").exists())
    if missing:
        raise sandbox.Unsupported(f"not installed: {', '.join(missing)}; run tests/install-languages")


def run_tests(language, build):
    for argv in (["link", "set", "lo", "up"], ["addr", "add", f"{_ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *argv], check=True)
    processes = [*start_servers(), start_proxy(build)]
    ProxiedInteropTest.language = language
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(ProxiedInteropTest)
    passed = unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()
    for process in processes:
        process.terminate()
    ended_well = processes[-1].wait(_PATIENCE_S) == 0
    if not passed or not ended_well:
        print((sandbox.WORK / "sluice-proxy.log").read_text(errors="replace"), file=sys.stderr)
    return 0 if passed and ended_well else 1


def main(language, build):
    check_installed(language)
    sandbox.run_inside(lambda: run_tests(language, pathlib.Path(build).resolve()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except sandbox.Unsupported as error:
        print(f"SKIPPED: {error}")
        sys.exit(sandbox.EXIT_UNSUPPORTED)
