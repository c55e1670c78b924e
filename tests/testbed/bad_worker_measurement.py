"""Measurements of bad workers: groups of fan-outs over one link, while the workers of one group have a fault."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import time

import flags as common
from answer_measurement import Servers, built, server_command
from bad_worker_faults import Place
from bad_worker_scenarios import HAND_WRITTEN, SMALL
from bad_worker_summary import budget_figures, figures_of, group_figures, memory_figures, run_line, verdict_line, verdicts
from measurement import Load, measure
from scenario import LinkScenario
from sluice_programs import link_config, scrape, sum_of_metric
from stock_clients import client_command, plain_environment, proxy_environment
from stock_measurement import ADMIN, LISTEN, ProxiedServers, StockLoads
from topology import AGGREGATOR, Network

sys.path.insert(0, str(common.REPOSITORY / "tests/system/apps"))
from certificates import Authority  # noqa: E402

_SAMPLE_S = 0.1
_SAMPLED = "sluice_budget_bytes,sluice_in_flight_bytes,process_resident_memory_bytes"
_PATIENCE_S = 60  # how long to wait for a load to end after its measured part
_GO_WAYS = ("go", "direct")
_GO_WARM_UP_BLOCKS = 10
_COUNTED = {
    "inferred_rto_waits": ("sluice_timeouts_total", 'kind="tcp_rto"'),
    "inferred_losses": ("sluice_inferred_losses_total",),
    "back_offs": ("sluice_budget_decisions_total", 'decision="back_off"'),
}


@dataclasses.dataclass(frozen=True)
class _Run:
    """One load with one variant of a scenario."""

    link: LinkScenario
    scenario: str
    way: str
    transport: str
    policy: str
    variant: object
    build: pathlib.Path
    seconds: float
    warm_up_s: float

    @property
    def title(self):
        return f"  {self.scenario}, {self.way}, {self.transport}, {self.policy}, {self.build}: {self.variant.name}"

    @property
    def timeout_s(self):
        return self.seconds + _PATIENCE_S


class BadWorkerMeasurement:
    """Runs scenarios with the programs of one or more builds. The servers come from the first build."""

    def __init__(self, flags, folder, progress):
        self._flags = flags
        self._folder = folder
        self._progress = progress
        self._loads = {build: built(build, "tests/group_load") for build in flags.build}
        self._proxies = {
            build: built(build, "bin/sluice-proxy") for build in flags.build if set(flags.way) - {"library", "direct"}
        }
        self._server = server_command(flags.build[0], "cpp")
        self._byte_server = [built(flags.build[0], "tests/byte_server")]
        self._go, self._go_server = (
            [client_command("go", program) for program in ("aggregator", "worker")] if set(flags.way) & set(_GO_WAYS) else 2 * [None]
        )
        self._tls = None

    def run(self, name, scenario):
        """Returns the results of one scenario: a list, ready for JSON."""
        results = []
        ways = [way for way in self._flags.way if way in scenario.ways]
        for transport, way in itertools.product(self._flags.transport, ways):
            self._progress.step(f"{name}: {scenario.link.workers} workers, {transport}, {scenario.link.title}")
            tunnels = scenario.tunnel_workers() if way != "tunnel" else range(scenario.link.workers)
            with Network(scenario.link) as network, self._servers(network, transport, way, tunnels) as servers:
                results += self._run_in(network, servers, name, scenario, way, transport)
        return results

    def _servers(self, network, transport, way, tunnels):
        """Returns servers, of which those of the workers in `tunnels` are byte_servers."""
        if way in _GO_WAYS:
            if transport == "tls":
                raise ValueError(f"--way {way}: only with --transport plaintext")
            return _GoServers(self._go_server, network, self._folder)
        if transport == "plaintext":
            machines = {worker % len(network.machines) for worker in tunnels}
            return _MixedServers(self._server, self._byte_server, machines, network, self._folder)
        authority = Authority(self._folder, "authority")
        hosts = ",".join(f"IP:{address}" for address in {address.split(":")[0] for address in network.worker_addresses()})
        self._tls = authority.file
        return Servers([*self._server, "--tls", *authority.issue("workers", hosts)], network, self._folder)

    def _run_in(self, network, servers, name, scenario, way, transport):
        flags = self._flags
        variants = [variant for variant in scenario.variants if variant.name in flags.variant]
        runs = {}  # keys are way, policy and build; for each repetition, results by variant
        for turn, policy in itertools.product(range(flags.repeat), flags.policy or scenario.default_policies):
            # Builds and variants are compared, so their runs follow each other.
            for variant, build in itertools.product(variants, flags.build):
                run = _Run(scenario.link, name, way, transport, variant.policy or policy, variant, build,
                           flags.seconds or scenario.seconds, flags.warm_up)  # fmt: skip
                repetitions = runs.setdefault((way, policy, build), [{} for _ in range(flags.repeat)])
                repetitions[turn][variant.name] = self._run_once(network, servers, run)
        return [
            self._result(scenario, repetitions, {"scenario": name, "way": way, "transport": transport, "policy": policy,
                                                 "build": str(build)})
            for (way, policy, build), repetitions in runs.items()
        ]  # fmt: skip

    def _result(self, scenario, repetitions, of):
        figures = [figures_of(runs, scenario) for runs in repetitions]
        medians, demands = verdicts(scenario.bounds, figures)
        result = {**of, **scenario.link.facts(), "medians": medians, "demands": demands, "figures": figures,
                  "repetitions": repetitions}  # fmt: skip
        if demands or scenario.shown:
            self._progress.step(verdict_line(result, scenario.shown))
        return result

    def _run_once(self, network, servers, run):
        self._progress.step(run.title)
        fault = run.variant.fault
        with contextlib.ExitStack() as stack:
            fault.set_up(Place(network, servers, self._folder))
            stack.callback(fault.tear_down)
            service, sampler, environment = servers, None, plain_environment()
            if run.way not in ("library", "direct"):
                service = stack.enter_context(self._proxy(network, servers, run))
                sampler = stack.enter_context(_ProxySampler(network, self._folder))
                environment = proxy_environment(LISTEN)
            if run.way in _GO_WAYS:
                load = _GoLoads(self._go_loads(network, run, environment), run.seconds, fault, sampler)
            else:
                load = _GroupLoad(network, self._load_argv(network, run), self._folder, environment, fault, sampler)
            result = measure(run, network, service, load, self._progress)
        result.update(fault.facts())
        self._progress.step(run_line(result))
        return result

    def _load_argv(self, network, run):
        config = {
            "groups": [self._group_config(group, network, run) for group in run.variant.groups],
            "stock_client": run.way != "library" or run.policy == HAND_WRITTEN,
            "link": link_config(run.link),
            "schedule": {"policy": run.policy},
            "warm_up_s": run.warm_up_s,
            "seconds": run.seconds,
        }
        if run.variant.classes and run.way == "library":
            config["schedule"]["classes"] = [{"name": name, "weight": weight} for name, weight in run.variant.classes]
        if run.variant.budget_bytes:
            config["schedule"]["budget"] = str(run.variant.budget_bytes)
        if run.transport == "tls":
            config["ca"] = self._tls
        file = self._folder / "group-load.json"
        file.write_text(json.dumps(config))
        return [self._loads[run.build], "--config", file]

    def _go_loads(self, network, run, environment):
        addresses = network.worker_addresses()
        loads = {}
        for group in run.variant.groups:
            folder = self._folder / group.name
            folder.mkdir(exist_ok=True)
            argv = [*self._go, "--workers", ",".join(addresses[worker] for worker in group.workers)]
            argv += ["--response-bytes", group.response_bytes, "--readers", group.readers, "--timeout", group.timeout_s]
            argv += ["--interval-ms", 1e3 * group.interval_s, "--seconds", run.seconds]
            argv += ["--warmup-blocks", _GO_WARM_UP_BLOCKS if group.warm_up else 0]
            loads[group.name] = Load(network, argv, folder, environment)
        return loads

    def _group_config(self, group, network, run):
        config = group.config(network.worker_addresses())
        return {**config, "via": LISTEN} if group.tunnel or run.way == "tunnel" else config

    def _proxy(self, network, servers, run):
        flags = ["--budget", run.variant.budget_bytes] if run.variant.budget_bytes else []
        for name, weight in run.variant.classes:
            flags += ["--class", f"{name}={weight}"]
        if run.variant.tunnels_class:
            flags += ["--tunnels-traffic-class", run.variant.tunnels_class]
        flags += ["--tls-ca", self._tls] if run.transport == "tls" else []
        scenario = _Proxied(run.link, run.policy)
        return _CountedProxy(self._proxies[run.build], servers, network, scenario, self._folder, flags)


@dataclasses.dataclass(frozen=True)
class _Proxied:
    """The part of a scenario that ProxiedServers reads."""

    link: LinkScenario
    policy: str


class _MixedServers(Servers):
    """Servers of two kinds: some machines have byte_servers."""

    def __init__(self, command, byte_command, byte_machines, network, folder):
        self._byte_command = byte_command
        self._byte_machines = byte_machines
        super().__init__(command, network, folder)

    def _start(self, command, network, machine, host, folder):
        command = self._byte_command if machine in self._byte_machines else command
        return super()._start(command, network, machine, host, folder)


class _GoServers(Servers):
    """The workers of examples/go."""

    def _argv(self, command, ready, listens):
        return [*command, "--ready-file", ready, "--listen", ",".join(listens)]


class _CountedProxy(ProxiedServers):
    """Also counts the losses that the proxy exports."""

    def counts(self):
        metrics = scrape(self._network, AGGREGATOR, ADMIN)
        return {**super().counts(), **{name: int(sum_of_metric(metrics, *metric)) for name, metric in _COUNTED.items()}}


class _ProxySampler:
    """Reads the budget of the proxy repeatedly while the `with` block lasts."""

    def __init__(self, network, folder):
        self._file = folder / "proxy-samples.json"
        script = pathlib.Path(__file__).with_name("metrics_sampler.py")
        argv = [sys.executable, str(script), str(_SAMPLE_S), _SAMPLED, ADMIN.rpartition(":")[2]]
        with open(self._file, "w") as output:
            self._process = subprocess.Popen(network.command(AGGREGATOR, argv), stdout=output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def samples(self, started_s):
        """Returns tuples: seconds since `started_s`, budget, bytes in flight, resident bytes."""
        rows = [json.loads(line) for line in self._file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [(time_s - started_s, *sample[0]) for time_s, sample in rows if sample[0] and time_s >= started_s]


class _GroupLoad(Load):
    """A load that starts when the fault has begun."""

    def __init__(self, network, argv, folder, environment, fault, sampler):
        super().__init__(network, argv, folder, environment)
        self._fault = fault
        self._sampler = sampler

    def start(self):
        self._fault.begin()
        super().start()

    def report(self):
        report = super().report()
        groups = {group["name"]: group for group in report["groups"]}
        if self._sampler:
            samples, counts = self._sampler.samples(report["started_s"]), {}
        else:
            samples = [(sample["time_s"], sample["budget_bytes"], sample["in_flight_bytes"], sample["resident_bytes"])
                       for sample in report["samples"]]  # fmt: skip
            counts = _counted_by_link(report)
        return {**_figures(groups, report["seconds"], samples), "budget_changes": report["budget_changes"], **counts}


class _GoLoads(StockLoads):
    """A client in Go for each group."""

    def __init__(self, loads, seconds, fault, sampler):
        super().__init__(loads)
        self._seconds = seconds
        self._fault = fault
        self._sampler = sampler

    def start(self):
        self._fault.begin()
        self._started_s = time.monotonic()
        super().start()

    def report(self):
        reports = {name: load.report() for name, load in self._loads.items()}
        groups = {name: {**report, "fan_outs": report["records"]} for name, report in reports.items()}
        samples = self._sampler.samples(self._started_s) if self._sampler else []
        counts = {} if self._sampler else dict.fromkeys(_COUNTED, 0)
        return {**_figures(groups, self._seconds, samples), **counts}


def _figures(groups, seconds, samples):
    """`groups` are by name, and `samples` as of _ProxySampler."""
    groups = {name: group_figures(group, seconds) for name, group in groups.items()}
    return {
        "goodput_bps": groups[SMALL]["goodput_bps"],
        "blocks": groups[SMALL]["fan_outs"],
        "seconds": seconds,
        "groups": groups,
        **budget_figures([sample[:3] for sample in samples]),
        **memory_figures([(time_s, resident) for time_s, _, _, resident in samples]),
    }


def _counted_by_link(report):
    if not report["metrics_after"]:
        return dict.fromkeys(_COUNTED, 0)  # there is no link
    before, after = report["metrics_before"], report["metrics_after"]
    return {name: int(sum_of_metric(after, *metric) - sum_of_metric(before, *metric)) for name, metric in _COUNTED.items()}
