"""Measurements of an aggregation tree: reads of blocks through two levels, each with its own bottleneck."""

import contextlib
import json
import random
import time

from counters import PortMonitor, cpu_seconds, machine_cpu_seconds, tcp_counters
from measurement import Load
from scenario import Think
from sluice_programs import (
    AGGREGATOR_LISTEN, aggregator_config, scrape, started_server, stripe, sum_of_metric, worker_config,
)  # fmt: skip
from topology import AGGREGATOR, Network, Site
from units import format_mbps

_SOURCE_SEED = 1
_SAMPLE_S = 0.5  # sampling interval of a port; long, because there are many ports


def _lower_site(aggregator):
    return Site(
        aggregator=f"mla-{aggregator}",
        aggregator_is_there=True,
        switch=f"switch-{aggregator}",
        machine_prefix=f"mla-{aggregator}-workers-",
        subnet=f"10.78.{aggregator}",
        device="down0",
    )


class _Tree:
    """The networks and the programs of both levels, until the `with` block ends."""

    def __init__(self, programs, scenario, data, folder):
        self._programs = programs
        self._scenario = scenario
        self._folder = folder
        self._stack = contextlib.ExitStack()
        with self._stack:
            self.top = self._enter(Network(scenario.upper_link(), Site(machine_prefix="mla-")))
            self.lower = [self._enter(Network(scenario.link, _lower_site(m))) for m in range(scenario.aggregators)]
            self.networks = [self.top, *self.lower]
            self.workers = [self._start_workers(m, network, data) for m, network in enumerate(self.lower)]
            self.mid_level = [self._start_mid_level(m, network) for m, network in enumerate(self.lower)]
            self.aggregator = self._start(self.top, "sluice-aggregator", AGGREGATOR, self._top_config())
            self.ports = [self._enter(PortMonitor(network, _SAMPLE_S)) for network in self.networks]
            self._stack = self._stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def check(self):
        """Raises RuntimeError with the log of a program that has ended."""
        for program in (*(worker for workers in self.workers for worker in workers), *self.mid_level, self.aggregator):
            program.check()

    def counts(self):
        """Returns for each port, the HLA's first, the bytes that passed it and the TCP counters of its senders."""
        senders = [self.mid_level, *self.workers]
        return [
            self._counts(network, port, programs) for network, port, programs in zip(self.networks, self.ports, senders)
        ]

    def take_peak_backlogs(self):
        return [port.take_peak_backlog_bytes() for port in self.ports]

    def _counts(self, network, port, senders):
        state = port.state()
        tcp = [tcp_counters(program.pid) for program in senders]
        metrics = scrape(network, network.aggregator)
        return {
            "drops": state.drops,
            "port_bytes": state.sent_bytes,
            **{f"tcp_{name}": sum(counters[name] for counters in tcp) for name in ("timeouts", "retransmits")},
            "goodput_bytes": int(sum_of_metric(metrics, "sluice_goodput_bytes_total")),
            "inferred_losses": int(sum_of_metric(metrics, "sluice_inferred_losses_total")),
            "senders_cpu_seconds": sum(cpu_seconds(program.pid) for program in senders),
        }

    # Workers give way to other programs, because real workers have CPUs of their own. Here all MLAs read ahead at once
    # when a block begins. Their workers would keep the aggregators from running for longer than a port's buffer lasts.
    def _start_workers(self, aggregator, network, data):
        folder = data / f"mla-{aggregator:04}"
        return [
            self._start(network, "sluice-worker", host, worker_config(network, machine, Think(), folder), gives_way=True)
            for machine, host in enumerate(network.machines)
        ]

    def _start_mid_level(self, aggregator, network):
        listen = self.top.worker_addresses()[aggregator]
        config = aggregator_config(self._scenario.link, self._scenario.policy, network.worker_addresses(), listen)
        cache_bytes = self._scenario.cache_blocks * self._scenario.upper_sru_bytes
        config |= {"level": "mla", "mid_level": {"cache": str(cache_bytes)}}
        return self._start(network, "sluice-aggregator", network.aggregator, config)

    def _top_config(self):
        link = self._scenario.upper_link()
        workers = self.top.worker_addresses()
        return aggregator_config(link, self._scenario.policy, workers, AGGREGATOR_LISTEN) | {"level": "hla"}

    def _start(self, network, program, host, config, gives_way=False):
        return self._enter(started_server(network, self._programs[program], host, config, self._folder, gives_way))

    def _enter(self, context):
        return self._stack.enter_context(context)


class TreeMeasurement:
    """Runs scenarios over one striped source file."""

    def __init__(self, programs, folder, scenario):
        self._programs = programs
        self._folder = folder
        self._source = folder / "source"
        self._data = folder / "data"
        self._source.write_bytes(random.Random(_SOURCE_SEED).randbytes(scenario.source_blocks() * scenario.block_bytes))
        levels = f"{scenario.aggregators}x{scenario.link.workers}"
        stripe(programs, self._source, levels, scenario.sru_bytes, self._data)

    def run(self, scenario, progress):
        """Returns one object, ready for JSON."""
        progress.step(scenario.title)
        with _Tree(self._programs, scenario, self._data, self._folder) as tree:
            facts = [network.facts() for network in tree.networks]
            if any(fact != facts[0] for fact in facts):
                raise RuntimeError(f"the networks of the tree differ in their settings: {facts}")
            with Load(tree.top, self._load_argv(scenario), self._folder) as load:
                measured = self._measure(scenario, tree, load, progress)
        result = {
            "policy": scenario.policy,
            "aggregators": scenario.aggregators,
            **scenario.link.facts(),
            **facts[0],
            "sru_bytes": scenario.sru_bytes,
            "upper_sru_bytes": scenario.upper_sru_bytes,
            "cache_blocks": scenario.cache_blocks,
            "blocks": scenario.blocks,
            "clients": scenario.clients,
            **measured,
        }
        progress.step(summary(result))
        return result

    def _load_argv(self, scenario):
        argv = [self._programs["sluice-load"], "--aggregator", AGGREGATOR_LISTEN, "--file", self._source.name]
        argv += ["--compare", self._source, "--blocks", scenario.blocks, "--clients", scenario.clients]
        return argv + ["--warmup", scenario.warmup_blocks]

    def _measure(self, scenario, tree, load, progress):
        load.wait_until_warm(tree, lambda: progress.update("warming up"))
        tree.take_peak_backlogs()
        before = tree.counts()
        busy_before_s, cpu_before_s = machine_cpu_seconds()
        started_s = time.monotonic()
        load.start()
        while not load.ended(wait_s=0.1):
            tree.check()
            if load.seconds() > scenario.timeout_s:
                raise RuntimeError(f"{scenario.title}: no end after {scenario.timeout_s} s (--timeout)")
            progress.update(f"  {load.seconds():6.1f} s")
        progress.done()
        seconds = time.monotonic() - started_s
        busy_s, cpu_s = machine_cpu_seconds()
        ports = [
            self._port(scenario.link, seconds, earlier, later, peak)
            for earlier, later, peak in zip(before, tree.counts(), tree.take_peak_backlogs())
        ]
        report = load.report()
        goodput_bps = round(report.pop("goodput_bps"))
        return {
            "goodput_bps": goodput_bps,
            "goodput_share_of_port": round(goodput_bps / scenario.link.rate_bps, 3),
            "blocks_read": report.pop("blocks"),
            **report,
            "switch_drops": sum(port["drops"] for port in ports),
            "tcp_timeouts": sum(port["tcp_timeouts"] for port in ports),
            "machine_cpu_busy_share": round((busy_s - busy_before_s) / max(cpu_s - cpu_before_s, 0.01), 3),
            "levels": [{"level": "hla", "ports": ports[:1]}, {"level": "mla", "ports": ports[1:]}],
        }

    @staticmethod
    def _port(link, seconds, earlier, later, peak_backlog_bytes):
        counts = {name: round(later[name] - earlier[name], 3) for name in later}
        return {
            **counts,
            "goodput_bps": round(8 * counts["goodput_bytes"] / seconds),
            "port_busy_share": round(8 * counts["port_bytes"] / (link.rate_bps * seconds), 3),
            "peak_backlog_bytes": peak_backlog_bytes,
        }


def summary(result):
    drops = {level["level"]: [port["drops"] for port in level["ports"]] for level in result["levels"]}
    return (
        f"  {format_mbps(result['goodput_bps'])} ({result['goodput_share_of_port']:.0%} of the HLA's port), block p50 "
        f"{result['block_p50_ms']:.1f} ms, drops {drops}, {result['tcp_timeouts']} TCP timeouts, {result['errors']:g} errors; "
        f"processors {result['machine_cpu_busy_share']:.0%} busy"
    )
