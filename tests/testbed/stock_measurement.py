"""Measurements of clients without Sluice in a test network, with and without sluice-proxy on the same host."""

import contextlib

from answer_measurement import Servers, built, link_flags, server_command
from counters import cpu_seconds
from measurement import Load, measure, summary
from processes import Program
from sluice_programs import scrape, sum_of_metric
from stock_clients import client_command, plain_environment, proxy_environment
from topology import AGGREGATOR, Network

LISTEN = "127.0.0.1:7400"
ADMIN = "127.0.0.1:7480"


class StockMeasurement:
    """Runs scenarios with the given clients, in the given ways."""

    def __init__(self, build, folder, clients, ways):
        self._folder = folder
        self._server = server_command(build, "cpp")
        self._clients = {client: client_command(client) for client in clients}
        self._proxy = built(build, "bin/sluice-proxy") if set(ways) - {"direct"} else None

    def run(self, scenario, progress):
        """Returns one object, ready for JSON."""
        progress.step(scenario.title)
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(scenario.link))
            servers = stack.enter_context(Servers(self._server, network, self._folder))
            service = servers
            if scenario.way != "direct":
                service = stack.enter_context(ProxiedServers(self._proxy, servers, network, scenario, self._folder))
            measured = measure(scenario, network, service, self._load(scenario, network), progress)
        result = {
            "mode": scenario.way,
            "client": "+".join(scenario.clients),
            "policy": "none" if scenario.way == "direct" else scenario.policy,
            **scenario.link.facts(),
            "response_bytes": scenario.response_bytes,
            "blocks": scenario.blocks,
            "readers": scenario.readers,
            **scenario.think.facts(),
            **measured,
        }
        progress.step(summary(result))
        return result

    def _load(self, scenario, network):
        argv = ["--workers", ",".join(network.worker_addresses()), "--response-bytes", scenario.response_bytes]
        argv += ["--blocks", scenario.blocks, "--readers", scenario.readers, "--warmup-blocks", scenario.warmup_blocks]
        argv += ["--think-ms", scenario.think.usual_ms, "--tail-ms", scenario.think.tail_ms]
        argv += ["--tail-share", scenario.think.tail_share]
        if scenario.way == "proxy-prior-knowledge":
            argv += ["--via", LISTEN]
        environment = proxy_environment(LISTEN) if scenario.way == "proxy" else plain_environment()
        loads = {}
        for client in scenario.clients:
            folder = self._folder / client
            folder.mkdir(exist_ok=True)
            loads[client] = Load(network, [*self._clients[client], *argv], folder, environment)
        return StockLoads(loads)


class ProxiedServers:
    """sluice-proxy on the aggregator's host and the servers behind it, until the `with` block ends."""

    def __init__(self, program, servers, network, scenario, folder, flags=()):
        self.workers = servers.workers
        self._servers = servers
        self._network = network
        self._used = False
        ready = folder / "proxy.ready"
        ready.unlink(missing_ok=True)
        argv = [program, "--listen", LISTEN, "--admin", ADMIN, "--workers", "10.0.0.0/8"]
        argv += ["--policy", scenario.policy, *link_flags(scenario.link), *flags, "--ready-file", ready]
        self.proxy = Program(network, AGGREGATOR, argv, folder / "proxy.log")
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.proxy)
            self.proxy.wait_until_ready(ready)
            stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self.proxy.__exit__(*error)

    def check(self):
        self._servers.check()
        self.proxy.check()

    def counts(self):
        """Raises RuntimeError if no client has connected to the proxy before the first call. The clients are warm by
        then, so they have bypassed it."""
        self._used = self._used or self._has_clients()
        if not self._used:
            raise RuntimeError(f"no client has connected to the proxy:\n{self.proxy.log()}")
        return {"proxy_cpu_seconds": cpu_seconds(self.proxy.pid)}

    def _has_clients(self):
        return sum_of_metric(scrape(self._network, AGGREGATOR, ADMIN), "sluice_proxy_connections_total") > 0



class StockLoads:
    """Loads by client name. They run at the same time and count as one load."""

    def __init__(self, loads):
        self._loads = loads
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        for load in self._loads.values():
            self._stack.enter_context(load)
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def wait_until_warm(self, service, on_wait):
        for load in self._loads.values():
            load.wait_until_warm(service, on_wait)

    def start(self):
        for load in self._loads.values():
            load.start()

    def seconds(self):
        return next(iter(self._loads.values())).seconds()

    def ended(self, wait_s):
        return all([load.ended(wait_s / len(self._loads)) for load in self._loads.values()])

    def report(self):
        """Combines the reports of the clients: all bytes over the time of the slowest client, and the longest of
        their block times."""
        reports = {client: load.report() for client, load in self._loads.items()}
        every = list(reports.values())
        seconds = max(report["seconds"] for report in every)
        return {
            "blocks": sum(report["blocks"] for report in every),
            "seconds": seconds,
            "goodput_bps": sum(1e6 * report["goodput_mbps"] * report["seconds"] for report in every) / seconds,
            "block_p50_ms": max(report["block_p50_ms"] for report in every),
            "block_p99_ms": max(report["block_p99_ms"] for report in every),
            "errors": sum(report["errors"] for report in every),
            "clients": reports,
        }
