"""Measurements of fan-outs: a load calls servers without Sluice in a test network."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from measurement import Load, measure, summary
from processes import Program
from sandbox import Unsupported
from scenario import MTU_BYTES
from topology import Network
from victim_flow import VictimFlow

SERVERS = ("cpp", "python")
_OPEN_LOOP_READERS = 64  # at most this many fan-outs at a time; later arrivals wait, and their time counts
_PYTHON_SERVER = pathlib.Path(__file__).with_name("answer_server.py")


class AnswerMeasurement:
    """Runs scenarios with one kind of server."""

    def __init__(self, build, folder, server):
        self._folder = folder
        self._load = built(build, "tests/fan_out_load")
        self._server = server_command(build, server)

    def run(self, scenario, progress):
        """Returns one object, ready for JSON."""
        progress.step(scenario.title)
        with Network(scenario.link) as network, Servers(self._server, network, self._folder) as servers:
            load = _StoppingLoad(network, self.load_argv(scenario, network), self._folder, servers, scenario.stopped)
            with VictimFlow(network, self._folder) if scenario.victim else contextlib.nullcontext() as victim:
                measured = measure(scenario, network, servers, load, progress)
            if victim is not None:
                measured.update(victim.report())
        result = {
            "policy": scenario.policy,
            "server": scenario.server,
            **scenario.link.facts(),
            "response_bytes": scenario.response_bytes,
            "sizes_known": scenario.sizes_known,
            "blocks": scenario.blocks,
            "clients": scenario.clients,
            **scenario.think.facts(),
            "replicas": scenario.replicas,
            "hedge_after_ms": scenario.hedge_after_ms,
            "in_flight": scenario.in_flight,
            "stopped": scenario.stopped,
            "load": scenario.load,
            **measured,
        }
        progress.step(summary(result))
        return result

    def load_argv(self, scenario, network):
        argv = [self._load, "--workers", ",".join(network.worker_addresses()), *policy_flags(scenario.policy)]
        argv += link_flags(scenario.link)
        argv += ["--response-bytes", scenario.response_bytes, "--blocks", scenario.blocks]
        if scenario.load:
            argv += ["--arrivals", f"{scenario.arrivals_per_s():g}"]
        readers = _OPEN_LOOP_READERS if scenario.load else scenario.clients
        argv += ["--readers", readers, "--warmup", scenario.warmup_blocks]
        argv += ["--think", f"{scenario.think.usual_ms}ms", "--tail-time", f"{scenario.think.tail_ms}ms"]
        argv += ["--tail-share", scenario.think.tail_share, "--replicas", scenario.replicas]
        if scenario.hedge_after_ms:
            argv += ["--hedge-after", f"{scenario.hedge_after_ms}ms"]
        if scenario.in_flight:
            argv += ["--in-flight", scenario.in_flight]
        return argv if scenario.sizes_known else [*argv, "--unknown-sizes"]


class _StoppingLoad(Load):
    """A load during which some servers stand still."""

    def __init__(self, network, argv, folder, servers, stopped):
        super().__init__(network, argv, folder)
        self._stopped = servers.workers[:stopped]

    def start(self):
        for server in self._stopped:
            server.send_signal(signal.SIGSTOP)
        super().start()

    def __exit__(self, *error):
        super().__exit__(*error)
        for server in self._stopped:
            server.send_signal(signal.SIGCONT)


class Servers:
    """A server on every machine of a network until the `with` block ends. It serves all workers of the machine."""

    def __init__(self, command, network, folder):
        self._stack = contextlib.ExitStack()
        with self._stack:
            self.workers = [
                self._start(command, network, machine, host, folder) for machine, host in enumerate(network.machines)
            ]
            self._stack = self._stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def check(self):
        for program in self.workers:
            program.check()

    def counts(self):
        return {}

    def _start(self, command, network, machine, host, folder):
        ready, log = (folder / f"{host}.{suffix}" for suffix in ("ready", "log"))
        ready.unlink(missing_ok=True)
        argv = self._argv(command, ready, network.machine_listens(machine))
        started = self._stack.enter_context(Program(network, host, argv, log))
        started.wait_until_ready(ready)
        return started

    def _argv(self, command, ready, listens):
        return [*command, ready, *listens]


def link_flags(link):
    """Returns the command line flags that describe the link to the programs of Sluice."""
    argv = ["--capacity", f"{link.rate_bps}bit", "--rtt", f"{link.rtt_us}us", "--mtu", MTU_BYTES]
    return [*argv, "--buffer", link.told_buffer()] if link.told_buffer() else argv


def policy_flags(policy):
    if policy == "hand-written":
        return ["--mode", "hand-written"]
    return [] if policy == "default" else ["--policy", policy]


def server_command(build, server):
    if server == "cpp":
        return [built(build, "tests/answer_server")]
    messages = built(build, "tests/testbed/generated/answers_pb2.py", os.R_OK).parent
    return [python_with_grpc(), _PYTHON_SERVER, messages]


def built(build, name, access=os.X_OK):
    path = pathlib.Path(build).resolve() / name
    if not os.access(path, access):
        raise ValueError(
            f"{path} is not there; build with: cmake --preset release && cmake --build --preset release, or name another "
            f"folder with --build"
        )
    return path


def python_with_grpc():
    # Debian's packages work only with Debian's Python, and a different Python may come first on the path.
    for interpreter in (sys.executable, "/usr/bin/python3"):
        command = [interpreter, "-c", "import grpc, google.protobuf"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return interpreter
    raise Unsupported("Python has no grpcio; on Debian: apt-get install python3-grpcio")
