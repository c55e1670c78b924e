"""One measurement: the programs of Sluice read striped blocks in a test network, and the kernel counts."""

import json
import os
import random
import subprocess
import time

from counters import PortMonitor, cpu_seconds, receive_queue_drops, tcp_counters
from processes import run_to_end, wait_until
from scenario import MTU_BYTES
from sluice_programs import AGGREGATOR_LISTEN, Service, stripe, sum_of_metric
from topology import AGGREGATOR, Network
from units import format_mbps

_SOURCE_SEED = 1
_PLAN_KEY = {"batches": "goodput_bps", "rolling": "rolling_goodput_bps", "grants": "rolling_goodput_bps", "unscheduled": "collapse_goodput_bps"}


class ReadMeasurement:
    """Runs scenarios that differ in their policy only, over one striped source file."""

    def __init__(self, programs, folder, scenario):
        self._programs = programs
        self._folder = folder
        self._source = folder / "source"
        self._data = folder / "data"
        block_count = scenario.source_blocks()
        self._source.write_bytes(random.Random(_SOURCE_SEED).randbytes(block_count * scenario.block_bytes))
        stripe(programs, self._source, scenario.link.workers, scenario.sru_bytes, self._data)

    def run(self, scenario, progress):
        """One object, ready for JSON."""
        progress.step(_title(scenario))
        with Network(scenario.link) as network:
            facts = network.facts()
            progress.step("  read back: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
            with Service(self._programs, network, scenario, self._data, self._folder) as service:
                with PortMonitor(network) as port:
                    measured = self._measure(scenario, network, service, port, progress)
        result = {
            "policy": scenario.policy,
            "workers": scenario.link.workers,
            "sru_bytes": scenario.sru_bytes,
            "blocks": scenario.blocks,
            "clients": scenario.clients,
            "rate_bps": scenario.link.rate_bps,
            "buffer_bytes": scenario.link.buffer_bytes,
            "burst_bytes": scenario.link.burst_bytes,
            "access_rate_bps": scenario.link.access_rate(),
            "think_ms": scenario.think_ms,
            **facts,
            **measured,
            "model_goodput_bps": self._model_goodput_bps(scenario),
            "kernel": os.uname().release,
        }
        progress.step(_summary(result))
        return result

    def _measure(self, scenario, network, service, port, progress):
        load = Load(self._programs, network, scenario, self._source, self._folder)
        with load:
            load.wait_until_warm(service, lambda: progress.update("warming up"))
            in_use = network.live_congestion_controls()
            if in_use != [scenario.link.congestion_control]:
                raise RuntimeError(f"connections run {in_use}, not {scenario.link.congestion_control}")
            before = _Counters(service, port)
            port.take_peak_backlog_bytes()
            load.start()
            while not load.ended(wait_s=0.1):
                service.check()
                if load.seconds() > scenario.timeout_s:
                    raise RuntimeError(f"{_title(scenario)}: no end after {scenario.timeout_s} s (--timeout)")
                state = port.state()
                progress.update(_live_line(state, before.port, load.seconds()))
            progress.done()
            after = _Counters(service, port)
            report = load.report()
        return {
            "goodput_bps": round(report["goodput_bps"]),
            "block_p50_ms": report["block_p50_ms"],
            "block_p99_ms": report["block_p99_ms"],
            "block_ms": report["block_ms"],
            "blocks_read": report["blocks"],
            "seconds": report["seconds"],
            "bad_bytes": report["bad_bytes"],
            "errors": report["errors"],
            "error_sample": report["error_sample"],
            "setup_drops": before.port.drops,
            "peak_backlog_bytes": port.take_peak_backlog_bytes(),
            **after.since(before),
        }

    def _model_goodput_bps(self, scenario):
        link = scenario.link
        argv = [self._programs["sluice-plan"], "--capacity", f"{link.rate_bps}bit", "--buffer", link.buffer_bytes]
        argv += ["--rtt", f"{link.rtt_us}us", "--mtu", MTU_BYTES, "--connections", "persistent"]
        argv += ["--workers", link.workers, "--sru", scenario.sru_bytes, "--json"]
        plan = json.loads(run_to_end(argv, "the model"))
        return round(plan[_PLAN_KEY[scenario.policy]])


class Load:
    """A sluice-load beside the aggregator. It warms up, waits for start(), reads, reports."""

    def __init__(self, programs, network, scenario, source, folder):
        self._start_file = folder / "start"
        self._start_file.unlink(missing_ok=True)
        self._log = folder / "load.log"
        self._started_s = None
        argv = [programs["sluice-load"], "--aggregator", AGGREGATOR_LISTEN, "--file", source.name]
        argv += ["--compare", source, "--blocks", scenario.blocks, "--clients", scenario.clients]
        argv += ["--warmup", scenario.warmup_blocks, "--start-file", self._start_file, "--json", "-"]
        self._output = open(folder / "load.json", "w+")
        self._errors = open(self._log, "w")
        self._process = subprocess.Popen(
            network.command(AGGREGATOR, [str(word) for word in argv]), stdout=self._output, stderr=self._errors
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._output.close()
        self._errors.close()

    def wait_until_warm(self, service, on_wait):
        def warm():
            on_wait()
            return self.ended(0) or "warm" in self._log.read_text().split()

        wait_until(warm, 900, "the warm-up of the load", [service])
        if self.ended(0):
            raise RuntimeError(f"sluice-load ended in its warm-up: {self._log.read_text().strip()}")

    def start(self):
        self._started_s = time.monotonic()
        self._start_file.touch()

    def seconds(self):
        return time.monotonic() - self._started_s

    def ended(self, wait_s):
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def report(self):
        if self._process.returncode != 0:
            raise RuntimeError(f"sluice-load ended with {self._process.returncode}: {self._log.read_text().strip()}")
        self._output.seek(0)
        return json.load(self._output)


class _Counters:
    """Everything that is counted from the start of the measured part to its end, at one moment."""

    def __init__(self, service, port):
        tcp = [tcp_counters(worker.pid) for worker in service.workers]
        self.port = port.state()
        self._counts = {
            "switch_drops": self.port.drops,
            "port_bytes": self.port.sent_bytes,
            "port_packets": self.port.sent_packets,
            "tcp_timeouts": sum(counters["timeouts"] for counters in tcp),
            "tcp_retransmits": sum(counters["retransmits"] for counters in tcp),
            "rpc_timeouts": int(sum_of_metric(service.metrics(), "sluice_timeouts_total")),
            "receive_queue_drops": receive_queue_drops(),
            "aggregator_cpu_seconds": cpu_seconds(service.aggregator.pid),
            "workers_cpu_seconds": sum(cpu_seconds(worker.pid) for worker in service.workers),
        }

    def since(self, before):
        return {name: round(count - before._counts[name], 3) for name, count in self._counts.items()}


def _title(scenario):
    link = scenario.link
    return (
        f"{scenario.policy}: {link.workers} workers x {scenario.sru_bytes} B, {scenario.blocks} blocks, "
        f"{format_mbps(link.rate_bps)}, buffer {link.buffer_bytes} B, {link.congestion_control}, "
        f"RTO_min {link.rto_min_ms} ms"
    )


def _live_line(port, before, seconds):
    sent_mb = (port.sent_bytes - before.sent_bytes) / 1e6
    return f"  {seconds:6.1f} s  {sent_mb:8.1f} MB through the port  {port.drops - before.drops} drops"


def _summary(result):
    share = result["goodput_bps"] / result["rate_bps"]
    return (
        f"  {format_mbps(result['goodput_bps'])} ({share:.0%} of the link), block p50 {result['block_p50_ms']:.1f} ms, "
        f"p99 {result['block_p99_ms']:.1f} ms, {result['switch_drops']} drops, {result['tcp_timeouts']} TCP timeouts, "
        f"{result['bad_bytes']} bad bytes, {result['errors']:g} errors"
    )
