"""The programs of Sluice in a test network: their paths, and a striped file that workers and an aggregator serve."""

import contextlib
import json
import os
import pathlib
import sys

from counters import cpu_seconds
from processes import Program, run_to_end
from scenario import MTU_BYTES
from topology import AGGREGATOR

# Every measurement of reads needs these programs, and the demo builds them.
READ_PROGRAMS = ("sluice-worker", "sluice-aggregator", "sluice-stripe", "sluice-cat", "sluice-load", "sluice-plan")

AGGREGATOR_LISTEN = "unix:/run/sluice/read.sock"
_ADMIN = "127.0.0.1:9100"
# The keys are the names that the kernel's own counts have in tcp_counters.
_EXPORTED = {
    "retransmits": ("sluice_worker_tcp_retransmitted_packets_total",),
    "timeouts": ("sluice_worker_tcp_rtos_total",),
    "loss_probes": ("sluice_worker_tcp_loss_probes_total",),
    "lost_retransmits": ("sluice_worker_tcp_lost_retransmits_total",),
    "spurious_timeouts": ("sluice_worker_tcp_spurious_rtos_total",),
    "full_window_losses": ("sluice_worker_tcp_losses_total", 'feedback="none"'),
}
_SCRAPE = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=10).read().decode())"


def programs_in(build, *others):
    """Returns paths by name, of the programs for reads and of the `others`. Raises ValueError if one has not been
    built."""
    folder = pathlib.Path(build).resolve() / "bin"
    programs = {name: folder / name for name in (*READ_PROGRAMS, *others)}
    missing = [name for name, path in programs.items() if not os.access(path, os.X_OK)]
    if missing:
        raise ValueError(
            f"not built in {folder}: {', '.join(missing)}; build with: cmake --preset release && "
            f"cmake --build --preset release, or name another folder with --build"
        )
    return programs


def stripe(programs, source, workers, sru_bytes, out):
    """`workers` is a number, or for a tree one number per level: 4x32."""
    run_to_end([programs["sluice-stripe"], "--workers", workers, "--sru", sru_bytes, "--out", out, source], "striping")


def start_server(network, program, host, config, folder, name, gives_way=False):
    """Starts a server of Sluice. Returns it and the path of the file that appears once it serves."""
    config_file, ready, log = (folder / f"{name}.{suffix}" for suffix in ("json", "ready", "log"))
    ready.unlink(missing_ok=True)
    config_file.write_text(json.dumps(config))
    argv = [program, "--config", config_file, "--ready-file", ready]
    return Program(network, host, argv, log, gives_way), ready


@contextlib.contextmanager
def started_server(network, program, host, config, folder, gives_way=False):
    """A server of Sluice that serves until the `with` block ends."""
    server, ready = start_server(network, program, host, config, folder, host, gives_way)
    with server:
        server.wait_until_ready(ready)
        yield server


class Service:
    """Workers on every machine of a network, and the aggregator that reads from them, until the `with` block ends."""

    def __init__(self, programs, network, scenario, data, folder):
        self._network = network
        self._stack = contextlib.ExitStack()
        with self._stack:
            self.workers = [
                self._start(programs["sluice-worker"], host, worker_config(network, machine, scenario.think, data), folder)
                for machine, host in enumerate(network.machines)
            ]
            self.aggregator = self._start(
                programs["sluice-aggregator"], AGGREGATOR, service_config(network, scenario), folder
            )
            self._stack = self._stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def check(self):
        """Raises RuntimeError with the log of a program that has ended."""
        for program in (*self.workers, self.aggregator):
            program.check()

    def counts(self):
        metrics = self._metrics()
        kinds = ("rpc_deadline", "queue_deadline", "stall", "tcp_rto")
        timeouts = {kind: int(sum_of_metric(metrics, "sluice_timeouts_total", f'kind="{kind}"')) for kind in kinds}
        return {
            "rpc_timeouts": timeouts["rpc_deadline"] + timeouts["queue_deadline"],
            "stalls": timeouts["stall"],
            "inferred_rto_waits": timeouts["tcp_rto"],
            "inferred_losses": int(sum_of_metric(metrics, "sluice_inferred_losses_total")),
            "reported_retransmits": int(sum_of_metric(metrics, "sluice_worker_reported_tcp_total", 'event="retransmit"')),
            "reported_rtos": int(sum_of_metric(metrics, "sluice_worker_reported_tcp_total", 'event="rto"')),
            "budget_changes": int(sum_of_metric(metrics, "sluice_budget_decisions_total")),
            **self._exported_counts(),
            "aggregator_cpu_seconds": cpu_seconds(self.aggregator.pid),
        }

    def budget_bytes(self):
        return int(sum_of_metric(self._metrics(), "sluice_budget_bytes"))

    def _exported_counts(self):
        """Returns the workers' own counters, for comparison with the counters of their kernels (tcp_counters)."""
        metrics = "\n".join(self._metrics(host) for host in self._network.machines)
        return {f"exported_{name}": int(sum_of_metric(metrics, *metric)) for name, metric in _EXPORTED.items()}

    def _metrics(self, host=AGGREGATOR):
        return scrape(self._network, host)

    def _start(self, program, host, config, folder):
        return self._stack.enter_context(started_server(self._network, program, host, config, folder))


def worker_config(network, machine, think, data):
    config = {"listen": network.machine_listens(machine), "data": str(data), "admin": _ADMIN}
    if think.usual_ms:
        config["think_time"] = f"{think.usual_ms}ms"
    if think.tail_ms:
        config["think_tail"] = {"share": think.tail_share, "time": f"{think.tail_ms}ms"}
    return config


def scrape(network, host, admin=_ADMIN):
    """Returns the metrics of a server of Sluice in a host, as text."""
    argv = [sys.executable, "-c", _SCRAPE, f"http://{admin}/metrics"]
    return run_to_end(network.command(host, argv), "scraping")


def service_config(network, scenario, listen=AGGREGATOR_LISTEN, admin=_ADMIN):
    """Returns the config of an aggregator over all workers of the network."""
    queue_limit = max(65536, 2 * scenario.clients * scenario.link.workers)
    return aggregator_config(scenario.link, scenario.policy, network.worker_addresses(), listen, admin, queue_limit)


def aggregator_config(link, policy, workers, listen, admin=_ADMIN, queue_limit=65536):
    return {
        "listen": listen,
        "admin": admin,
        "workers": workers,
        "link": link_config(link),
        "schedule": {"policy": policy, "queue_limit": queue_limit, "paced": link.paced},
        # The timeouts are long because a collapse must show as TCP's timeouts, before Sluice's own timeouts end it.
        "sru_timeout": "120s",
        "block_timeout": "600s",
        "connect_timeout": "60s",
    }


def link_config(link):
    return {
        "capacity": f"{link.rate_bps}bit",
        **({"buffer": f"{link.told_buffer()}"} if link.told_buffer() else {}),
        "rtt": f"{link.rtt_us}us",
        "mtu": MTU_BYTES,
        "connections": "persistent",
    }


def sum_of_metric(metrics, name, label=""):
    """Sums a metric of a scraped text over all labels, or over the lines with this label. Raises KeyError if the
    metric does not exist."""
    lines = [line for line in metrics.splitlines() if line.split("{")[0].split(" ")[0] == name and label in line]
    values = [float(line.rsplit(" ", 1)[1]) for line in lines]
    if not values:
        raise KeyError(f"the aggregator shows no {name}")
    return sum(values)
