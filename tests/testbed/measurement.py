"""One measurement: a load reads from a service in a test network while the kernel counts."""

import json
import os
import pathlib
import subprocess
import time

from counters import PortMonitor, cpu_seconds, machine_cpu_seconds, receive_queue_drops, tcp_counters
from processes import wait_until
from topology import AGGREGATOR
from units import format_mbps

_BUSY = 0.95  # the link or a CPU that is busier than this is the bottleneck


def measure(scenario, network, service, load, progress):
    """Returns the kernel counters and the load's own report, from its start to its end, ready for JSON.

    A service has `workers` (programs), `check()`, which raises if one of them has ended, and `counts()` of its own.
    """
    facts = network.facts()
    progress.step("  read back: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
    with PortMonitor(network) as port, load:
        load.wait_until_warm(service, lambda: progress.update("warming up"))
        in_use = network.live_congestion_controls()
        if set(in_use) - {scenario.link.congestion_control}:  # a load may have no connection between two blocks
            raise RuntimeError(f"connections run {in_use}, not {scenario.link.congestion_control}")
        load_average = os.getloadavg()[0]
        before = _Counters(service, port)
        port.take_peak_backlog_bytes()
        load.start()
        while not load.ended(wait_s=0.1):
            service.check()
            if load.seconds() > scenario.timeout_s:
                raise RuntimeError(f"{scenario.title}: no end after {scenario.timeout_s} s (--timeout)")
            progress.update(_live_line(port.state(), before.port, load.seconds()))
        progress.done()
        after = _Counters(service, port)
        report = load.report()
        peak_backlog_bytes = port.take_peak_backlog_bytes()
    return {
        **facts,
        "goodput_bps": round(report.pop("goodput_bps")),
        "blocks_read": report.pop("blocks"),
        **report,
        "setup_drops": before.port.drops,
        "peak_backlog_bytes": peak_backlog_bytes,
        **after.since(before),
        **_use(scenario.link, report["seconds"], before, after),
        "load_average_before": load_average,
        "kernel": os.uname().release,
    }


class Load:
    """A program on the aggregator's host. It warms up, reports that, waits for a file, reads, and reports in JSON on
    stdout."""

    def __init__(self, network, argv, folder, environment=None):
        self._start_file = folder / "start"
        self._start_file.unlink(missing_ok=True)
        self._log = folder / "load.log"
        self._started_s = None
        self._name = pathlib.Path(argv[0]).name
        argv = [str(word) for word in [*argv, "--start-file", self._start_file]]
        self._output = open(folder / "load.json", "w+")
        self._errors = open(self._log, "w")
        self._process = subprocess.Popen(
            network.command(AGGREGATOR, argv), stdout=self._output, stderr=self._errors, env=environment
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
            raise RuntimeError(f"{self._name} ended in its warm-up: {self._log.read_text().strip()}")

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
            raise RuntimeError(f"{self._name} ended with {self._process.returncode}: {self._log.read_text().strip()}")
        self._output.seek(0)
        return json.load(self._output)


class _Counters:
    """All counters of the measured part at one moment."""

    def __init__(self, service, port):
        tcp = [tcp_counters(worker.pid) for worker in service.workers]
        self.time_s = time.monotonic()
        self.port = port.state()
        self.machine_cpu_busy_s, self.machine_cpu_s = machine_cpu_seconds()
        self.workers_cpu_s = [cpu_seconds(worker.pid) for worker in service.workers]
        self._counts = {
            "switch_drops": self.port.drops,
            "port_bytes": self.port.sent_bytes,
            "port_packets": self.port.sent_packets,
            **{f"tcp_{name}": sum(counters[name] for counters in tcp) for name in tcp[0]},
            "receive_queue_drops": receive_queue_drops(),
            "workers_cpu_seconds": sum(self.workers_cpu_s),
            **service.counts(),
        }

    def since(self, before):
        return {name: round(count - before._counts[name], 3) for name, count in self._counts.items()}


def _use(link, seconds, before, after):
    """Returns how busy the link and the CPUs were, and which of them was the bottleneck."""
    port = 8 * (after.port.sent_bytes - before.port.sent_bytes) / (link.rate_bps * seconds)
    machine = (after.machine_cpu_busy_s - before.machine_cpu_busy_s) / max(after.machine_cpu_s - before.machine_cpu_s, 0.01)
    cpu = [later - earlier for earlier, later in zip(before.workers_cpu_s, after.workers_cpu_s)]
    busiest = max(cpu) / (after.time_s - before.time_s)
    shares = {"link": port, "machine's processors": machine, "a server's processor": busiest}
    used_up = [name for name, share in shares.items() if share >= _BUSY]
    return {
        "port_busy_share": round(port, 3),
        "machine_cpu_busy_share": round(machine, 3),
        "busiest_server_cpu_share": round(busiest, 3),  # of one CPU; Python cannot use more
        "bottleneck": used_up[0] if used_up else "none",
    }


def _live_line(port, before, seconds):
    sent_mb = (port.sent_bytes - before.sent_bytes) / 1e6
    return f"  {seconds:6.1f} s  {sent_mb:8.1f} MB through the port  {port.drops - before.drops} drops"


def summary(result):
    share = result["goodput_bps"] / result["rate_bps"]
    return (
        f"  {format_mbps(result['goodput_bps'])} ({share:.0%} of the link), block p50 {result['block_p50_ms']:.1f} ms, "
        f"p99 {result['block_p99_ms']:.1f} ms, {result['switch_drops']} drops, {result['tcp_timeouts']} TCP timeouts, "
        f"{result['errors']:g} errors; link {result['port_busy_share']:.0%} busy, processors "
        f"{result['machine_cpu_busy_share']:.0%}"
    )
