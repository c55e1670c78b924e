"""Measurements of a link that several aggregators share: their shares of it, and the effects of faults."""

import contextlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from counters import PortMonitor, tcp_counters
from processes import wait_until
from sluice_programs import service_config, link_config, start_server, started_server, stripe, worker_config
from topology import AGGREGATOR, Network
from units import format_mbps

_SOURCE_SEED = 1
_SOCKET = "/run/sluice/link.sock"
_FIRST_PORT = 9110
_SAMPLE_S = 0.05
_SAMPLED = "sluice_goodput_bytes_total,sluice_budget_bytes,sluice_budget_leased"
_STOP_S = 1.0
_PATIENCE_S = 30


class ShareMeasurement:
    """Runs one scenario repeatedly over one striped source file."""

    def __init__(self, programs, folder, scenario):
        self._programs = programs
        self._folder = folder
        self._scenario = scenario
        self._source = folder / "source"
        self._data = folder / "data"
        reads = scenario.reads
        self._source.write_bytes(random.Random(_SOURCE_SEED).randbytes(reads.source_blocks() * reads.block_bytes))
        stripe(programs, self._source, reads.link.workers, reads.sru_bytes, self._data)

    def run(self, progress):
        scenario = self._scenario
        progress.step(scenario.title)
        with contextlib.ExitStack() as stack:
            host = _Host(self._programs, self._folder, self._data, self._source, scenario, stack)
            result = {
                **scenario.reads.link.facts(),
                "policy": scenario.reads.policy,
                "sru_bytes": scenario.reads.sru_bytes,
                "processes": len(scenario.weights),
                "weights": scenario.weights,
                "daemon": scenario.daemon,
                "mode": scenario.mode,
                "fault": scenario.fault,
            }
            host.warm_up()
            loads = [host.load(0)]
            result["alone"] = self._phase(host, "alone", progress)
            loads += [host.load(i) for i in range(1, len(scenario.weights))]
            time.sleep(0.5)  # connections and leases settle; this time does not count
            result["busy"] = self._with_shares(self._phase(host, "busy", progress))
            measure = {"none": self._idle, "kill-client": self._kill_client, "kill-daemon": self._kill_daemon,
                       "stop-client": self._stop_client}[scenario.fault]  # fmt: skip
            result["after"] = measure(host, loads, result, progress)
            for load in loads:
                load.kill()
                load.wait()
        return result

    def _phase(self, host, name, progress, seconds=None):
        before, start_s = host.counts(), time.monotonic()
        time.sleep(seconds or self._scenario.busy_s)
        phase = host.since(before, start_s, time.monotonic())
        goodput = " + ".join(format_mbps(bps) for bps in phase["goodput_bps"])
        progress.step(f"  {name}: {goodput}, {phase['switch_drops']} drops, {phase['tcp_timeouts']} TCP timeouts")
        return phase

    def _with_shares(self, phase):
        """Returns each process's part of the goodput divided by its part of the weights. 1 is exact."""
        total, weights = sum(phase["goodput_bps"]) or 1, self._scenario.weights
        ratios = [bps / total / (weight / sum(weights)) for bps, weight in zip(phase["goodput_bps"], weights)]
        return {**phase, "total_goodput_bps": sum(phase["goodput_bps"]), "share_over_weight": [round(r, 3) for r in ratios]}

    def _idle(self, host, loads, result, progress):
        start_s = time.monotonic()
        for load in loads[1:]:
            load.kill()
        for load in loads[1:]:
            load.wait()
        time.sleep(0.1)
        phase = self._phase(host, "the first one alone again", progress)
        whole_ms = host.until(start_s, lambda sample: sample[0] and sample[0][1] >= host.whole_bytes)
        share = phase["goodput_bps"][0] / max(result["alone"]["goodput_bps"][0], 1)
        return {**phase, "whole_link_after_ms": whole_ms, "share_of_alone": round(share, 3)}

    def _kill_client(self, host, loads, result, progress):
        victim = len(self._scenario.weights) - 1
        start_s = time.monotonic()
        host.kill_aggregator(victim)
        loads[victim].kill()
        phase = self._phase(host, f"process {victim} is killed", progress)

        def taken_over(sample):
            return sum(one[1] for one in sample[:victim] if one) >= 0.9 * host.whole_bytes

        return {**phase, "recovery_ms": host.until(start_s, taken_over), **host.dips(start_s, result)}

    def _stop_client(self, host, loads, result, progress):
        victim = len(self._scenario.weights) - 1
        start_s = time.monotonic()
        host.signal_aggregator(victim, signal.SIGSTOP)
        stopped = self._phase(host, f"process {victim} is stopped", progress, _STOP_S)

        def taken_over(sample):
            return sum(one[1] for one in sample[:victim] if one) >= 0.9 * host.whole_bytes

        recovery_ms = host.until(start_s, taken_over)
        continued_s = time.monotonic()
        host.signal_aggregator(victim, signal.SIGCONT)
        phase = self._with_shares(self._phase(host, "it goes on", progress))
        back_ms = host.until(continued_s, lambda sample: sample[victim] and sample[victim][1] > 0)
        return {**phase, "stopped": stopped, "recovery_ms": recovery_ms, "back_after_ms": back_ms,
                **host.dips(start_s, result)}  # fmt: skip

    def _kill_daemon(self, host, loads, result, progress):
        start_s = time.monotonic()
        host.kill_daemon()
        without = self._with_shares(self._phase(host, "the daemon is killed", progress))
        again_s = time.monotonic()
        host.start_daemon()
        phase = self._with_shares(self._phase(host, "it is back", progress))
        leased_ms = host.until(again_s, lambda sample: all(one and one[2] for one in sample))
        return {**phase, "without_daemon": without, "recovery_ms": leased_ms, **host.dips(start_s, result)}


class _Host:
    """The network and its workers, and the programs on the aggregators' host: the daemon, the aggregators, their
    loads and a sampler."""

    def __init__(self, programs, folder, data, source, scenario, stack):
        self._programs, self._folder, self._source, self._scenario = programs, folder, source, scenario
        self._stack = stack
        reads = scenario.reads
        self.whole_bytes = reads.link.told_buffer()
        self._network = stack.enter_context(Network(reads.link))
        self._workers = [
            stack.enter_context(started_server(self._network, programs["sluice-worker"], host,
                                               worker_config(self._network, machine, reads.think, data), folder))
            for machine, host in enumerate(self._network.machines)
        ]  # fmt: skip
        self._daemons = []
        if scenario.daemon:
            self.start_daemon()
        self._aggregators = [self._start_aggregator(i) for i in range(len(scenario.weights))]
        self._port = stack.enter_context(PortMonitor(self._network))
        self._samples = stack.enter_context(_Samples(self._network, [_FIRST_PORT + i for i in range(len(scenario.weights))]))

    def _start_aggregator(self, index):
        config = service_config(self._network, self._scenario.reads, self._listen(index), f"127.0.0.1:{_FIRST_PORT + index}")
        if self._scenario.daemon:
            config["shared_link"] = {"socket": _SOCKET, "application": f"app-{index}", "weight": self._scenario.weights[index]}
        return self._start_killable("sluice-aggregator", f"aggregator-{index}", config)

    def start_daemon(self):
        config = {
            "socket": _SOCKET,
            "link": link_config(self._scenario.reads.link),
            "mode": self._scenario.mode,
            "lease_time": self._scenario.lease_time,
        }
        self._daemons.append(self._start_killable("sluice-link", f"link-{len(self._daemons)}", config))

    def _start_killable(self, program, name, config):
        """Starts a server as started_server does, but the server may have died by the end."""
        server, ready = start_server(self._network, self._programs[program], AGGREGATOR, config, self._folder, name)
        self._stack.callback(server.kill)
        server.wait_until_ready(ready)
        return server

    @staticmethod
    def _listen(index):
        return f"unix:/run/sluice/read-{index}.sock"

    def load(self, index, blocks=1000000):
        argv = [self._programs["sluice-load"], "--aggregator", self._listen(index), "--file", self._source.name]
        argv += ["--blocks", blocks, "--clients", self._scenario.reads.clients, "--timeout", "60s"]
        load = subprocess.Popen(self._network.command(AGGREGATOR, [str(word) for word in argv]),
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self._stack.callback(load.kill)
        return load

    def warm_up(self):
        """Warms up one aggregator after another: it connects, opens windows and reads manifests."""
        for index in range(len(self._scenario.weights)):
            if self.load(index, blocks=3).wait(_PATIENCE_S * 4) != 0:
                raise RuntimeError(f"the warm-up of process {index} failed")
        if self._scenario.daemon:
            wait_until(lambda: all(one and one[2] for one in self._samples.last()), _PATIENCE_S, "leases", self._workers)

    def kill_aggregator(self, index):
        self._aggregators[index].kill()

    def signal_aggregator(self, index, signum):
        self._aggregators[index].send_signal(signum)

    def kill_daemon(self):
        self._daemons[-1].kill()

    def counts(self):
        tcp = [tcp_counters(worker.pid) for worker in self._workers]
        return {
            "switch_drops": self._port.state().drops,
            **{f"tcp_{name}": sum(counters[name] for counters in tcp) for name in ("timeouts", "retransmits")},
        }

    def since(self, before, start_s, end_s):
        counts = {name: count - before[name] for name, count in self.counts().items()}
        return {"seconds": round(end_s - start_s, 3), "goodput_bps": self._samples.goodput_bps(start_s, end_s), **counts}

    def until(self, start_s, condition):
        """Returns the milliseconds until a sample met the condition, or None if no sample did."""
        for time_s, sample in self._samples.since(start_s):
            if condition(sample):
                return round((time_s - start_s) * 1000)
        return None

    def dips(self, start_s, result):
        """Returns the lowest rate over the link in any fifth of a second, compared with the rate while all were
        busy."""
        lowest = self._samples.lowest_total_bps(start_s, 0.2)
        busy = result["busy"]["total_goodput_bps"] or 1
        return {"lowest_goodput_bps": lowest, "lowest_over_busy": round(lowest / busy, 3)}


class _Samples:
    """The metrics of the aggregators from start to close, read on a thread of its own."""

    def __init__(self, network, ports):
        script = pathlib.Path(__file__).with_name("metrics_sampler.py")
        argv = [sys.executable, str(script), str(_SAMPLE_S), _SAMPLED, *map(str, ports)]
        self._process = subprocess.Popen(network.command(AGGREGATOR, argv), stdout=subprocess.PIPE, text=True)
        self._count = len(ports)
        self._lock = threading.Lock()
        self._rows = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def _read(self):
        for line in self._process.stdout:
            with self._lock:
                self._rows.append(json.loads(line))

    def last(self):
        with self._lock:
            return self._rows[-1][1] if self._rows else [None] * self._count

    def since(self, start_s, end_s=float("inf")):
        with self._lock:
            return [row for row in self._rows if start_s <= row[0] <= end_s]

    def goodput_bps(self, start_s, end_s):
        rows = self.since(start_s, end_s)
        return [self._rate([(time_s, sample[i][0]) for time_s, sample in rows if sample[i]]) for i in range(self._count)]

    def lowest_total_bps(self, start_s, window_s):
        """Returns the lowest sum of the aggregators' rates in any window. An aggregator that is dead or stopped
        keeps its last count."""
        rows = self.since(start_s)
        totals, known = [], [one[0] if one else 0.0 for one in self._before(start_s)]
        for time_s, sample in rows:
            known = [one[0] if one else before for one, before in zip(sample, known)]
            totals.append((time_s, sum(known)))
        rates = []
        for i, (time_s, total) in enumerate(totals):
            later = next(((t, n) for t, n in totals[i:] if t >= time_s + window_s), None)
            if later:
                rates.append(round(8 * (later[1] - total) / (later[0] - time_s)))
        return min(rates, default=0)

    def _before(self, start_s):
        with self._lock:
            return next((row[1] for row in reversed(self._rows) if row[0] < start_s), [None] * self._count)

    @staticmethod
    def _rate(points):
        if len(points) < 2 or points[-1][0] == points[0][0]:
            return 0
        return round(8 * (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))
