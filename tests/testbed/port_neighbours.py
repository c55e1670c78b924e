"""Neighbours in the port: traffic to the host of the aggregator that is not part of the fan-outs. Each is a Fault."""

import contextlib
import json
import math
import pathlib
import sys
import time

from bad_worker_faults import BadPath, Fault
from bad_worker_summary import group_figures
from measurement import Load
from processes import Program, wait_until
from stock_clients import plain_environment
from topology import AGGREGATOR, AGGREGATOR_ADDRESS

_HOST = "neighbour"
_TRAFFIC = pathlib.Path(__file__).with_name("neighbour_traffic.py")
_SINK = f"{AGGREGATOR_ADDRESS}:19998"
_SERVER_PORT = 20000
_PATIENCE_S = 60


class Traffic(Fault):
    """A role of neighbour_traffic.py, on a host of its own with its own congestion control. It sends from before the load's
    warm-up until the load has ended."""

    def __init__(self, seconds, role, *arguments, congestion_control="cubic"):
        self._seconds = seconds
        self._role = [role, _SINK, *arguments]
        self._congestion_control = congestion_control

    def set_up(self, place):
        self._network = place.network
        ready, arrived, self._report = (place.folder / f"neighbour.{suffix}" for suffix in ("ready", "arrived", "json"))
        for file in (ready, arrived):
            file.unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(place.network.remove_host, _HOST)
            place.network.add_host(_HOST, self._congestion_control)
            receive = [sys.executable, _TRAFFIC, "receive", ready, arrived, self._report, _SINK]
            receiver = stack.enter_context(Program(place.network, AGGREGATOR, receive, place.folder / "sink.log"))
            receiver.wait_until_ready(ready)
            send = [sys.executable, _TRAFFIC, *self._role]
            sender = stack.enter_context(Program(place.network, _HOST, send, place.folder / "neighbour.log"))
            wait_until(arrived.exists, _PATIENCE_S, "the first bytes of the neighbour", [sender, receiver])
            self._stack = stack.pop_all()

    def begin(self):
        self._began_s = time.monotonic()
        in_use = self._network.live_congestion_controls(_HOST)
        if set(in_use) - {self._congestion_control}:
            raise RuntimeError(f"the neighbour's connections run {in_use}, not {self._congestion_control}")

    def tear_down(self):
        self._stack.close()

    def facts(self):
        samples = json.loads(self._report.read_text())
        ends_s = [min(second, self._seconds) for second in range(math.ceil(self._seconds) + 1)]
        counts = [_bytes_until(samples, self._began_s + end_s) for end_s in ends_s]
        if counts[-1] == counts[0]:
            raise RuntimeError("the neighbour's traffic did not arrive during the measured part")
        return {
            "neighbour_goodput_bps": round(8 * (counts[-1] - counts[0]) / self._seconds),
            "neighbour_goodput_by_second_bps": [8 * (later - earlier) for earlier, later in zip(counts, counts[1:])],
        }


def _bytes_until(samples, time_s):
    """Returns the bytes of the last sample before the time."""
    return max((count for sample_s, count in samples if sample_s <= time_s), default=0)


class OtherLoad(Fault):
    """Other fan-outs from the aggregator's host, in a process of its own, to servers on a host of their own. They begin
    and end with the measured part."""

    def __init__(self, load, server, group, config):
        self._load_program = load
        self._server = server
        self._group = group
        self._config = config

    def set_up(self, place):
        folder = place.folder / _HOST
        folder.mkdir(exist_ok=True)
        ready, config = folder / "server.ready", folder / "group-load.json"
        ready.unlink(missing_ok=True)
        self._begun = False
        with contextlib.ExitStack() as stack:
            stack.callback(place.network.remove_host, _HOST)
            host = place.network.add_host(_HOST)
            addresses = [f"{host}:{_SERVER_PORT + worker}" for worker in self._group.workers]
            config.write_text(json.dumps({**self._config, "groups": [self._group.config(addresses)]}))
            serve = [*self._server, ready, *addresses]
            server = stack.enter_context(Program(place.network, _HOST, serve, folder / "server.log"))
            server.wait_until_ready(ready)
            load = Load(place.network, [self._load_program, "--config", config], folder, plain_environment())
            self._load = stack.enter_context(load)
            load.wait_until_warm(server, lambda: None)
            self._stack = stack.pop_all()

    def begin(self):
        self._load.start()
        self._begun = True

    def tear_down(self):
        with self._stack:
            if self._begun:
                wait_until(lambda: self._load.ended(0), _PATIENCE_S, "the end of the neighbour's load")
                (group,) = self._load.report()["groups"]
                self._figures = group_figures(group, self._config["seconds"])

    def facts(self):
        if not self._figures["goodput_bps"]:
            raise RuntimeError(f"the neighbour's fan-outs brought nothing: {self._figures['error_sample']}")
        return {
            "neighbour_goodput_bps": self._figures["goodput_bps"],
            "neighbour_goodput_by_second_bps": self._figures["goodput_by_second_bps"],
        }


class Overtaken(BadPath):
    """Not a neighbour: packets of all workers are overtaken, and none is lost. This begins with the measured part."""

    def __init__(self, share):
        super().__init__((), loss=0, reorder=share)

    def facts(self):
        facts = super().facts()
        if not facts["late_packets"]:
            raise RuntimeError("no packet was overtaken during the measured part")
        return facts
