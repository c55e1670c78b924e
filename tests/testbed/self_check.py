"""Checks that the test network behaves like a real one: plain sockets must collapse if all send at once, and must
not collapse if few do."""

import contextlib
import json
import pathlib
import sys

from counters import PortMonitor, tcp_counters
from processes import Program, run_to_end
from sandbox import WORK
from scenario import wire_bytes
from topology import AGGREGATOR, Network

_SCRIPT = pathlib.Path(__file__).with_name("raw_incast.py")
_READ_S = 60


def _measure(link, sru_bytes, blocks, in_flight):
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(link))
        facts = network.facts()
        senders = []
        for machine, host in enumerate(network.machines):
            ready = WORK / f"ready-{machine}"
            ready.unlink(missing_ok=True)
            argv = [sys.executable, _SCRIPT, "serve", sru_bytes, ready, *network.machine_listens(machine)]
            sender = stack.enter_context(Program(network, host, argv, WORK / f"{host}.log"))
            sender.wait_until_ready(ready)
            senders.append(sender)
        monitor = stack.enter_context(PortMonitor(network))
        argv = [sys.executable, _SCRIPT, "read", sru_bytes, blocks, in_flight, _READ_S, *network.worker_addresses()]
        result = json.loads(run_to_end(network.command(AGGREGATOR, argv), "the reader"))
        counters = [tcp_counters(sender.pid) for sender in senders]
        return {
            "in_flight": in_flight,
            "blocks": result["blocks"],
            "goodput_bps": round(result["goodput_bps"]),
            "switch_drops": monitor.state().drops,
            "tcp_timeouts": sum(counter["timeouts"] for counter in counters),
            "tcp_retransmits": sum(counter["retransmits"] for counter in counters),
            "peak_backlog_bytes": monitor.take_peak_backlog_bytes(),
        } | facts


def self_check(link, sru_bytes, blocks):
    """Returns the measurements and the complaints. A network that works has no complaints."""
    fits = max(1, link.buffer_bytes // wire_bytes(sru_bytes))
    if fits >= link.workers:
        raise ValueError(f"{link.workers} responses of {sru_bytes} bytes fit the buffer; nothing can collapse")
    all_at_once = _measure(link, sru_bytes, blocks, link.workers)
    few_at_once = _measure(link, sru_bytes, blocks, fits)
    demands = {
        "all at once: the port drops packets": all_at_once["switch_drops"] > 0,
        "all at once: senders run into TCP timeouts": all_at_once["tcp_timeouts"] > 0,
        "all at once: goodput collapses below half of the link": all_at_once["goodput_bps"] < link.rate_bps / 2,
        f"{fits} at once: every block arrives": few_at_once["blocks"] == blocks,
        f"{fits} at once: the port drops nothing": few_at_once["switch_drops"] == 0,
        f"{fits} at once: no TCP timeout": few_at_once["tcp_timeouts"] == 0,
        # An idle machine reaches 95 % of the link. A busy machine delays the shaper, which is not a collapse.
        f"{fits} at once: three times the goodput of all at once": few_at_once["goodput_bps"]
        >= 3 * all_at_once["goodput_bps"],
        f"{fits} at once: no more than the link carries": few_at_once["goodput_bps"] <= link.rate_bps,
    }
    return [all_at_once, few_at_once], [demand for demand, met in demands.items() if not met]
