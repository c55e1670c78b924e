"""Measurements of connections that carry bytes of no known protocol, directly and in tunnels of sluice-proxy."""

import contextlib

from answer_measurement import Servers, built, link_flags
from measurement import Load, measure, summary
from processes import run_to_end
from sluice_programs import scrape, sum_of_metric
from stock_measurement import ADMIN, LISTEN, ProxiedServers
from topology import AGGREGATOR, Network

TUNNEL_FLAGS = {"forwarded": ["--tunnels-scheduled=false"], "scheduled": []}
_TURN_ENDS = ("silence", "unanswered", "part", "client")


class TunnelledServers(ProxiedServers):
    """sluice-proxy and the servers behind it, with the counts of tunnels."""

    def counts(self):
        metrics = scrape(self._network, AGGREGATOR, ADMIN)
        is_there = "sluice_tunnel_turns_total{" in metrics  # it is once a scheduled tunnel has been open

        def total(name, label=""):
            return int(sum_of_metric(metrics, name, label)) if is_there else 0

        turns = {end: total("sluice_tunnel_turns_total", f'end="{end}"') for end in _TURN_ENDS}
        surprises = total("sluice_tunnel_surprises_total")
        return {**super().counts(), **{f"turns_{end}": count for end, count in turns.items()}, "surprises": surprises}


class TunnelMeasurement:
    """Runs scenarios with byte_server and byte_load."""

    def __init__(self, build, folder):
        self._folder = folder
        self._server = built(build, "tests/byte_server")
        self._load = built(build, "tests/byte_load")
        self._proxy = built(build, "bin/sluice-proxy")

    def run(self, scenario, progress):
        """Returns one object, ready for JSON."""
        progress.step(scenario.title)
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(scenario.link))
            servers = stack.enter_context(Servers([self._server, *self._tls(scenario)], network, self._folder))
            service = servers
            if scenario.way in TUNNEL_FLAGS:
                flags = TUNNEL_FLAGS[scenario.way]
                service = stack.enter_context(TunnelledServers(self._proxy, servers, network, scenario, self._folder, flags))
            measured = self.load(scenario, network, service, progress)
        result = {
            "mode": scenario.way,
            "policy": scenario.policy,
            **scenario.link.facts(),
            "response_bytes": scenario.response_bytes,
            "most_response_bytes": scenario.most_response_bytes,
            "tls": scenario.tls,
            "blocks": scenario.blocks,
            **scenario.think.facts(),
            "errors": 0,
            **measured,
        }
        progress.step(summary(result))
        return result

    def load(self, scenario, network, service, progress, workers=None):
        """Returns what byte_load and the kernel report beside a service that runs already. The load reads from all
        workers, or from these."""
        argv = self._argv(scenario, network, workers or network.worker_addresses())
        return measure(scenario, network, service, Load(network, argv, self._folder), progress)

    def _argv(self, scenario, network, workers):
        argv = [self._load, "--workers", ",".join(workers), "--response-bytes", scenario.response_bytes]
        argv += ["--most-response-bytes", scenario.most_response_bytes, "--blocks", scenario.blocks]
        argv += ["--warmup-blocks", scenario.warmup_blocks, "--think-us", round(1000 * scenario.think.usual_ms)]
        if scenario.way == "library":
            argv += ["--library", "--policy", scenario.policy, *link_flags(scenario.link)]
        elif scenario.way in TUNNEL_FLAGS:
            argv += ["--via", LISTEN]
        return [*argv, *(["--tls"] if scenario.tls else []), *(["--alone"] if scenario.alone else [])]

    def _tls(self, scenario):
        if not scenario.tls:
            return []
        key, cert = self._folder / "key.pem", self._folder / "cert.pem"
        run_to_end(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", "/CN=byte-server", "-keyout", key, "-out", cert], "openssl"
        )  # fmt: skip
        return ["--cert", cert, "--key", key]
