"""Measurements of the adaptive budget: a service keeps reading while the buffer of its switch port changes."""

import json
import random

from counters import PortMonitor, tcp_counters
from processes import run_to_end
from sluice_programs import AGGREGATOR_LISTEN, Service, stripe
from topology import AGGREGATOR, Network

_SOURCE_SEED = 1


class AdaptMeasurement:
    """Runs scenarios over one striped source file. Splits each scenario into chunks of a few blocks, and counts each
    chunk."""

    def __init__(self, programs, folder, scenario):
        self._programs = programs
        self._folder = folder
        self._source = folder / "source"
        self._data = folder / "data"
        self._source.write_bytes(random.Random(_SOURCE_SEED).randbytes(scenario.source_blocks() * scenario.block_bytes))
        stripe(programs, self._source, scenario.link.workers, scenario.sru_bytes, self._data)

    def run(self, scenario, phases, progress):
        """Each phase is a pair: the buffer in bytes, and the number of chunks of scenario.blocks blocks to read with
        it."""
        progress.step(scenario.title)
        chunks = []
        with Network(scenario.link) as network, Service(
            self._programs, network, scenario, self._data, self._folder
        ) as service, PortMonitor(network) as port:
            for buffer_bytes, count in phases:
                network.set_buffer(buffer_bytes)
                for _ in range(count):
                    chunks.append({"buffer_bytes": buffer_bytes, **self._chunk(scenario, network, service, port)})
                    progress.step("  " + ", ".join(f"{name} {value}" for name, value in chunks[-1].items()))
            decisions = [line for line in service.aggregator.log().splitlines() if "msg=budget " in line]
        return {
            **scenario.link.facts(),
            "policy": scenario.policy,
            "sru_bytes": scenario.sru_bytes,
            "blocks_per_chunk": scenario.blocks,
            "chunks": chunks,
            "decisions": decisions,
        }

    def _chunk(self, scenario, network, service, port):
        before = _counts(service, port)
        argv = [self._programs["sluice-load"], "--aggregator", AGGREGATOR_LISTEN, "--file", self._source.name]
        argv += ["--compare", self._source, "--blocks", scenario.blocks, "--clients", scenario.clients]
        report = json.loads(run_to_end(network.command(AGGREGATOR, [str(word) for word in argv]), "the load"))
        after = _counts(service, port)
        if report["errors"] or report["bad_bytes"]:
            raise RuntimeError(f"the load met {report['errors']:g} errors and {report['bad_bytes']:g} bad bytes")
        return {
            "goodput_bps": round(report["goodput_bps"]),
            "block_p50_ms": round(report["block_p50_ms"], 1),
            **{name: after[name] - before[name] for name in after},
            "budget_bytes": service.budget_bytes(),
        }


def _counts(service, port):
    tcp = [tcp_counters(worker.pid) for worker in service.workers]
    inferred = service.counts()
    return {
        "switch_drops": port.state().drops,
        **{f"tcp_{name}": sum(counters[name] for counters in tcp) for name in ("timeouts", "retransmits")},
        "inferred_losses": inferred["inferred_losses"],
        "inferred_rto_waits": inferred["inferred_rto_waits"],
    }
