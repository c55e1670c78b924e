"""Calibrations: sluice-calibrate measures a test network with a known rate, buffer and round trip."""

import contextlib
import json
import re
import shutil
import time

from processes import run_to_end
from sandbox import Unsupported
from scenario import Think
from sluice_programs import started_server, worker_config
from topology import AGGREGATOR, Network, machine_address

_PINGS = 400
_PING_INTERVAL_S = 0.005
_PINGED_MACHINES = 3
_NOT_DETERMINED = 3  # exit code of sluice-calibrate if it could not determine every value


def measure(programs, link, folder, progress):
    """Returns one object, ready for JSON: the true values, the measured values, and the errors in percent."""
    if not shutil.which("ping"):
        raise Unsupported("missing tools: ping; on Debian: apt-get install iputils-ping")
    data = folder / "data"
    data.mkdir(exist_ok=True)
    progress.step(f"{link.workers} workers, {link.title}")
    with Network(link) as network, contextlib.ExitStack() as stack:
        for machine, host in enumerate(network.machines):
            config = worker_config(network, machine, Think(), data)
            stack.enter_context(started_server(network, programs["sluice-worker"], host, config, folder))
        before_us = _ping_us(network)
        started_s = time.monotonic()
        report = _calibrate(programs, network, folder)
        seconds = time.monotonic() - started_s
        # Ping before and after, because other load on the machine may have changed during the run.
        ping_us = [min(pair) for pair in zip(before_us, _ping_us(network))]
    return _result(link, ping_us, report, seconds)


def _calibrate(programs, network, folder):
    report = folder / "calibration.json"
    argv = [programs["sluice-calibrate"], "--workers", ",".join(network.worker_addresses()), "--json", report]
    run_to_end(network.command(AGGREGATOR, argv), "the calibration", allowed=(0, _NOT_DETERMINED))
    return json.loads(report.read_text())


def _ping_us(network):
    """Returns the minimum and the average round trip of an idle network, over some machines."""
    runs = []
    for machine in range(min(_PINGED_MACHINES, len(network.machines))):
        argv = ["ping", "-q", "-n", "-c", _PINGS, "-i", _PING_INTERVAL_S, machine_address(machine)]
        output = run_to_end(network.command(AGGREGATOR, argv), "ping")
        least, average = re.search(r"= ([\d.]+)/([\d.]+)/", output).groups()
        runs.append((1000 * float(least), 1000 * float(average)))
    return [min(values) for values in zip(*runs)]


def _result(link, ping_us, report, seconds):
    figures = {figure["name"]: figure for figure in report["figures"]}
    truth = {"capacity": link.rate_bps, "buffer": link.buffer_bytes, "rtt_min": ping_us[0] / 1e6}
    return {
        **link.facts(),
        "ping_min_us": round(ping_us[0], 1),
        "ping_average_us": round(ping_us[1], 1),
        "seconds": round(seconds, 1),
        "measured": {name: figures[name].get("value") for name in truth},
        "low": {name: figures[name].get("low") for name in truth},
        "high": {name: figures[name].get("high") for name in truth},
        "error_percent": {name: _error_percent(figures[name].get("value"), value) for name, value in truth.items()},
        "notes": report.get("notes", []) + [figure["note"] for figure in report["figures"] if "note" in figure],
        "link": report["link"],
    }


def _error_percent(measured, truth):
    return None if measured is None else round(100 * (measured / truth - 1), 1)


def summary(result):
    errors = ", ".join(f"{name} {error:+.1f} %" for name, error in result["error_percent"].items() if error is not None)
    return f"  {errors or 'nothing determined'}, {result['seconds']:.0f} s"
