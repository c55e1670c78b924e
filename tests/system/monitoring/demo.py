"""A worker, an aggregator, a sluice-link and a sluice-proxy on loopback, and a Prometheus that scrapes them as the
guide for operators describes."""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from monitored import CONFIG_FILE, RULE_FILES, load_yaml

_PATIENCE_S = 60  # to wait for an expected event
_INTERVAL = "1s"
_WORKERS = 4


def wait_until(condition, what):
    """Returns the condition's value once it is true. For conditions that only another process can make true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {_PATIENCE_S} s for {what}")
        time.sleep(0.05)
    return result


def settled(look):
    """Calls `look` until it finds nothing wrong or the time is up, and returns its last result."""
    deadline = time.monotonic() + _PATIENCE_S
    while (wrong := look()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return wrong


class Program:
    """One running program, from its start to the end of the `with` block."""

    def __init__(self, argv, folder):
        name = pathlib.Path(argv[0]).name
        self._log = pathlib.Path(folder, f"{name}.log")
        self.name = name
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen([str(word) for word in argv], stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self._process.kill()
        self._process.wait()

    def serves(self, condition):
        """Waits for a condition that the program makes true. Raises AssertionError with its log if the program ends
        before."""

        def holds():
            if self._process.poll() is not None:
                raise AssertionError(f"{self.name} has ended:\n{self._log.read_text(errors='replace')}")
            return condition()

        return wait_until(holds, f"{self.name} to serve")


class Demo:
    """All programs over a striped file. The aggregator is a mid-level one, and shares its link. Not thread-safe."""

    def __init__(self, programs, folder, stack):
        self._programs = pathlib.Path(programs)
        self._folder = pathlib.Path(folder)
        source = self._folder / "source"
        source.write_bytes(random.Random(1).randbytes(400_000))
        self._run("sluice-stripe", "--workers", _WORKERS, "--sru", 10_000, "--out", self._folder / "stripes", source)
        listen = ",".join(["127.0.0.1:0"] * _WORKERS)
        self.worker, addresses = self._serve(
            stack, "sluice-worker", "--data", self._folder / "stripes", "--listen", listen
        )
        _, (link_socket, link_admin) = self._serve(
            stack, "sluice-link", "--socket", self._folder / "link.socket", "--buffer", "32kb"
        )
        self._aggregator, (self._address, aggregator_admin) = self._serve(
            stack, "sluice-aggregator", "--listen", "127.0.0.1:0", "--workers", ",".join(addresses[:_WORKERS]),
            "--mid_level", "--shared_link_socket", link_socket, "--buffer", "32kb",
        )  # fmt: skip
        # A route to the aggregator lets reads go through the proxy, too.
        _, (self._route, proxy_admin) = self._serve(
            stack, "sluice-proxy", "--route", f"127.0.0.1:0={self._address}", "--workers", "127.0.0.0/8", "--buffer", "32kb",
            "--class", "reads=3,scan=1",
        )  # fmt: skip
        self.targets = {
            "sluice-aggregator": aggregator_admin,
            "sluice-worker": addresses[_WORKERS],
            "sluice-link": link_admin,
            "sluice-proxy": proxy_admin,
        }

    def read(self):
        """Reads some data blocks directly, and then through the proxy."""
        for aggregator in (self._address, self._route):
            flags = ["--clients", 2, "--blocks", 20]
            report = json.loads(self._run("sluice-load", "--aggregator", aggregator, "--file", "source", *flags))
            if report["errors"]:
                raise AssertionError(report)

    def _serve(self, stack, name, *flags):
        """Returns the program and its addresses. The last address serves the metrics."""
        ready = self._folder / f"{name}.ready"
        argv = [self._programs / name, "--admin", "127.0.0.1:0", "--ready-file", ready, *flags]
        program = stack.enter_context(Program(argv, self._folder))
        program.serves(ready.exists)
        return program, ready.read_text().split()

    def _run(self, name, *flags):
        argv = [str(word) for word in (self._programs / name, *flags)]
        result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
        if result.returncode != 0:
            raise AssertionError(f"{name} ended with {result.returncode}: {result.stderr}")
        return result.stdout


class Prometheus:
    """A server with the configuration of deploy/monitoring, except for targets and intervals. Alerts ignore their
    `for`, so they fire at once instead of after some minutes."""

    def __init__(self, targets, folder, stack):
        self._folder = pathlib.Path(folder)
        self._address = f"127.0.0.1:{free_port()}"
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._config(targets)))  # every JSON text is YAML
        argv = ["prometheus", f"--config.file={config}", f"--web.listen-address={self._address}", "--log.level=warn"]
        argv.append(f"--storage.tsdb.path={self._folder / 'tsdb'}")
        stack.enter_context(Program(argv, folder)).serves(self._ready)

    def ask(self, path, **parameters):
        """Returns `data` of a response of the HTTP API. Raises ValueError for an invalid query."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None

    def series(self, selector):
        return self.ask("series", **{"match[]": selector})

    def value(self, expression):
        """Returns the value of a query with one result, or None if it has none yet. Raises ValueError for several
        results, because their order depends on which series Prometheus saw first."""
        result = self.ask("query", query=expression)["result"]
        if len(result) > 1:
            raise ValueError(f"{expression} has {len(result)} results: {[one['metric'] for one in result]}")
        return float(result[0]["value"][1]) if result else None

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def firing(self):
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]

    def _config(self, targets):
        config = load_yaml(CONFIG_FILE)
        config["global"] = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
        config["rule_files"] = [str(self._rules_without_for(path)) for path in RULE_FILES]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
        return config

    def _rules_without_for(self, path):
        content = load_yaml(path)
        for group in content["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        copy = self._folder / path.name
        copy.write_text(json.dumps(content))
        return copy

    def _ready(self):
        with contextlib.suppress(OSError):  # urllib's error for a 503 is one, too
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=_PATIENCE_S):
                return True
        return False


def free_port():
    """Returns a port below the kernel's ephemeral range. Otherwise another test could take it before Prometheus
    listens."""
    for port in random.sample(range(10_000, 32_000), 1_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no free port below 32000")
