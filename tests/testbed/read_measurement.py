"""Measurements of reads: the programs of Sluice read striped blocks in a test network."""

import json
import random

from measurement import Load, measure, summary
from processes import run_to_end
from scenario import MTU_BYTES
from sluice_programs import AGGREGATOR_LISTEN, Service, stripe
from topology import Network

_SOURCE_SEED = 1
_PLAN_KEY = {
    "batches": "goodput_bps",
    "rolling": "rolling_goodput_bps",
    "grants": "grants_goodput_bps",
    "unscheduled": "unscheduled_goodput_bps",
}


class ReadMeasurement:
    """Runs scenarios that differ only in their policy, over one striped source file."""

    def __init__(self, programs, folder, scenario):
        self._programs = programs
        self._folder = folder
        self._source = folder / "source"
        self._data = folder / "data"
        block_count = scenario.source_blocks()
        self._source.write_bytes(random.Random(_SOURCE_SEED).randbytes(block_count * scenario.block_bytes))
        stripe(programs, self._source, scenario.link.workers, scenario.sru_bytes, self._data)

    def run(self, scenario, progress):
        """Returns one object, ready for JSON."""
        progress.step(scenario.title)
        with Network(scenario.link) as network:
            with Service(self._programs, network, scenario, self._data, self._folder) as service:
                load = Load(network, self._load_argv(scenario), self._folder)
                measured = measure(scenario, network, service, load, progress)
        result = {
            "policy": scenario.policy,
            **scenario.link.facts(),
            "sru_bytes": scenario.sru_bytes,
            "blocks": scenario.blocks,
            "clients": scenario.clients,
            **scenario.think.facts(),
            **measured,
            "model_goodput_bps": self._model_goodput_bps(scenario),
        }
        progress.step(summary(result))
        return result

    def _load_argv(self, scenario):
        argv = [self._programs["sluice-load"], "--aggregator", AGGREGATOR_LISTEN, "--file", self._source.name]
        argv += ["--compare", self._source, "--blocks", scenario.blocks, "--clients", scenario.clients]
        return argv + ["--warmup", scenario.warmup_blocks]

    def _model_goodput_bps(self, scenario):
        link = scenario.link
        argv = [self._programs["sluice-plan"], "--capacity", f"{link.rate_bps}bit", "--buffer", link.buffer_bytes]
        argv += ["--rtt", f"{link.rtt_us}us", "--mtu", MTU_BYTES, "--connections", "persistent"]
        argv += ["--workers", link.workers, "--sru", scenario.sru_bytes, "--json"]
        plan = json.loads(run_to_end(argv, "the model"))
        goodput_bps = plan[_PLAN_KEY[scenario.policy]]  # None if the responses exceed the buffer without a schedule
        return None if goodput_bps is None else round(goodput_bps)
