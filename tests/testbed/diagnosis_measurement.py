"""Diagnoses of known networks: sluice-diagnose runs on the aggregator's host and on a host of workers while a load calls
servers without Sluice."""

import contextlib
import dataclasses
import json
import subprocess

from answer_measurement import AnswerMeasurement, Servers, built
from bad_worker_faults import BadPath, Fault, Place, SlowSenders
from counters import PortMonitor
from measurement import Load
from scenario import AnswerScenario, Think
from topology import AGGREGATOR, Network

_EXIT_CODES = {"no": 0, "not_sure": 3, "yes": 4}
_ENDLESS_BLOCKS = 1_000_000  # the load is ended when the diagnoses are
_ROOMY_BUFFER_BYTES = 4 << 20
_BAD_MACHINE = 0
_LOSS = 0.05
_SLOW_BPS = 3e6


@dataclasses.dataclass(frozen=True)
class Known:
    """A network with a known state, and the verdicts that are right there. `worker` is a machine of workers, the bad one
    if one is bad."""

    policy: str
    aggregator: tuple
    worker: tuple
    roomy: bool = False  # the buffer holds all responses
    fault: Fault = Fault()
    response_bytes: str = "10240"
    think: Think = Think()
    workers: int = 0  # 0: as many as the link has
    rate_bps: int = 0  # 0: as the link has
    idle: bool = False


KNOWN = {
    "incast": Known("hand-written", ("yes",), ("yes",)),
    # A busy machine spreads the responses, so that few are lost.
    "computing": Known("hand-written", ("yes", "not_sure"), ("yes", "not_sure"), think=Think(60.0, 0.0)),
    # Most responses are lost as a whole after their requests were acknowledged, which only their senders can see. At
    # 100 Mbit/s, a busy machine asks 400 workers so slowly that the port loses next to nothing.
    "small": Known(
        "hand-written",
        ("yes", "not_sure"),
        ("yes", "not_sure"),
        response_bytes="1200",
        think=Think(60.0, 0.0),
        workers=400,
        rate_bps=25_000_000,
    ),
    "grants": Known("default", ("no",), ("no",)),
    "room": Known("hand-written", ("no",), ("no",), roomy=True),
    # A machine that pauses makes many responses late at once.
    "lossy": Known(
        "hand-written", ("no", "not_sure"), ("no", "not_sure"), roomy=True, fault=BadPath([_BAD_MACHINE], loss=_LOSS, reorder=0)
    ),
    "slow": Known("hand-written", ("no",), ("no",), roomy=True, fault=SlowSenders([_BAD_MACHINE], _SLOW_BPS)),
    # Some workers take as long as a retransmission timeout.
    "tail": Known("default", ("no", "not_sure"), ("no",), think=Think(2.0, 200.0)),
    # Responses wait longer than a retransmission timeout in the port, and none is lost.
    "queue": Known("hand-written", ("no", "not_sure"), ("no", "not_sure"), roomy=True, response_bytes="49152"),
    "idle": Known("hand-written", ("not_sure",), ("not_sure",), idle=True),
}


class DiagnosisMeasurement:
    def __init__(self, build, folder, seconds):
        self._folder = folder
        self._seconds = seconds
        self._program = built(build, "bin/sluice-diagnose")
        self._answers = AnswerMeasurement(build, folder, "cpp")
        self._server = [built(build, "tests/answer_server")]

    def run(self, name, link, progress):
        """Returns one object, ready for JSON."""
        known = KNOWN[name]
        if known.roomy:
            link = dataclasses.replace(link, buffer_bytes=_ROOMY_BUFFER_BYTES)
        if known.workers:
            link = dataclasses.replace(link, workers=known.workers)
        if known.rate_bps:
            link = dataclasses.replace(link, rate_bps=known.rate_bps)
        scenario = AnswerScenario(
            link=link,
            policy=known.policy,
            response_bytes=known.response_bytes,
            sizes_known=True,
            blocks=_ENDLESS_BLOCKS,
            think=known.think,
        )
        progress.step(f"{name}: {scenario.title}")
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(link))
            servers = stack.enter_context(Servers(self._server, network, self._folder))
            known.fault.set_up(Place(network, servers, self._folder))
            stack.callback(known.fault.tear_down)
            if not known.idle:
                load = stack.enter_context(Load(network, self._answers.load_argv(scenario, network), self._folder))
                load.wait_until_warm(servers, lambda: progress.update("warming up"))
                known.fault.begin()
                load.start()
            port = stack.enter_context(PortMonitor(network))
            before = port.state()
            result = {"scenario": name, **link.facts(), **self._diagnose(network)}
            after = port.state()
            result["switch_drops"] = after.drops - before.drops
            result["switch_packets"] = after.sent_packets - before.sent_packets
            if not known.idle and load.ended(0):
                raise RuntimeError("the load ended before the diagnoses")
        for host in ("aggregator", "worker"):
            progress.step(f"  {host}: {result[host]['line']}")
        return result

    def _diagnose(self, network):
        hosts = {"aggregator": AGGREGATOR, "worker": network.machines[_BAD_MACHINE]}
        running = {name: self._start(network, host) for name, host in hosts.items()}
        try:
            return {name: _report(process, self._file(hosts[name])) for name, process in running.items()}
        finally:
            for process in running.values():
                process.kill()
                process.wait()

    def _start(self, network, host):
        argv = [self._program, "--duration", f"{self._seconds}s", "--json", self._file(host)]
        return subprocess.Popen(
            network.command(host, [str(word) for word in argv]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def _file(self, host):
        return self._folder / f"diagnosis-{host}.json"


def _report(process, file):
    text, errors = process.communicate()
    if process.returncode not in _EXIT_CODES.values():
        raise RuntimeError(f"sluice-diagnose failed with {process.returncode}: {errors.strip()}")
    report = json.loads(file.read_text())
    if _EXIT_CODES[report["verdict"]] != process.returncode:
        raise RuntimeError(f"exit code {process.returncode} with the verdict {report['verdict']}")
    return {"line": text.splitlines()[0], "text": text, **report}
