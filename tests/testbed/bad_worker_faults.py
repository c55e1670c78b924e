"""The faults that workers of a test network can have: slow, dead, cut off, paused, lossy.

A fault is set up before the load starts, begins just before the measured part, and is taken down afterwards, so that the
network is healthy again for the next load.
"""

import dataclasses
import json
import pathlib
import shutil
import signal
import sys
import threading
import time

from processes import Program, run_to_end
from sandbox import Unsupported
from topology import AGGREGATOR, PORT, machine_address

_DEAD_SUBNET = "10.78.0.0/16"
_DEAD_PORT = 20000
_DEAD_PER_24 = 250
_LATE_S = 0.001  # delay of reordered packets: about 80 packets of a port of 1 Gbit/s
_FIRST_PAUSE_S = 1.0
_DETOUR, _DETOUR_END = "detour", "detour-end"


@dataclasses.dataclass(frozen=True)
class Place:
    """The network and the programs of a fault."""

    network: object
    servers: object
    folder: pathlib.Path


class Fault:
    """No fault. Subclasses override the methods that they need."""

    def set_up(self, place):
        """Called before the load starts."""

    def begin(self):
        """Called just before the measured part starts."""

    def tear_down(self):
        """Called after the load has ended."""

    def facts(self):
        """Returns figures, ready for JSON. Called after tear_down."""
        return {}


class SlowSenders(Fault):
    """The machines send at a lower rate, and drop nothing."""

    def __init__(self, machines, rate_bps):
        self._machines = machines
        self._rate_bps = rate_bps

    def set_up(self, place):
        self._place = place
        self._set_rates(self._rate_bps)

    def tear_down(self):
        self._set_rates(self._place.network.access_rate_bps)

    def facts(self):
        return {"slow_rate_bps": self._rate_bps}

    def _set_rates(self, rate_bps):
        for machine in self._machines:
            self._place.network.set_access_rate(machine, rate_bps)


class DeadAddresses(Fault):
    """Addresses behind a router, the first machine, which drops packets to them. Rejected: free addresses of the
    aggregator's own subnet. No host replies to ARP for them, so connecting fails after 3 s with EHOSTUNREACH."""

    @staticmethod
    def addresses(count):
        return tuple(f"10.78.{i // _DEAD_PER_24}.{i % _DEAD_PER_24 + 1}:{_DEAD_PORT}" for i in range(count))

    def set_up(self, place):
        self._place = place
        self._opens = None
        _ip(place, place.network.machines[0], "route", "replace", "blackhole", _DEAD_SUBNET)
        _ip(place, AGGREGATOR, "route", "replace", _DEAD_SUBNET, "via", machine_address(0))

    def begin(self):
        self._opens = self._count_opens()

    def tear_down(self):
        if self._opens is not None:
            self._opens = self._count_opens() - self._opens
        _ip(self._place, AGGREGATOR, "route", "del", _DEAD_SUBNET)
        _ip(self._place, self._place.network.machines[0], "route", "del", "blackhole", _DEAD_SUBNET)

    def facts(self):
        return {"connection_attempts": self._opens}

    def _count_opens(self):
        lines = _run(self._place, AGGREGATOR, "cat", "/proc/net/snmp").splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("ActiveOpens")])


class LostLinks(Fault):
    """The links of machines fail silently: no packet arrives, and none leaves. The aggregator keeps the MAC
    addresses of the machines, as it would keep a router's, so that its own packets still leave."""

    def __init__(self, machines):
        self._machines = machines

    def set_up(self, place):
        self._place = place
        for machine in self._machines:
            self._neighbour("replace", machine, ["lladdr", self._mac_address(machine), "nud", "permanent"])

    def begin(self):
        for machine in self._machines:
            self._set_links(machine, "down")

    def tear_down(self):
        for machine in self._machines:
            self._set_links(machine, "up")
            self._neighbour("del", machine, [])

    def facts(self):
        return {"machines_without_link": len(self._machines)}

    def _neighbour(self, verb, machine, attributes):
        network = self._place.network
        _ip(self._place, AGGREGATOR, "neigh", verb, machine_address(machine), "dev", network.device, *attributes)

    def _mac_address(self, machine):
        network = self._place.network
        found = _ip(self._place, network.machines[machine], "-j", "link", "show", "dev", network.device)
        return json.loads(found)[0]["address"]

    def _set_links(self, machine, state):
        network = self._place.network
        _ip(self._place, network.switch, "link", "set", network.machine_port(machine), state)


class Pauses(Fault):
    """A worker's process stops repeatedly, as in a long garbage collection."""

    def __init__(self, machine, pause_s, interval_s):
        self._machine = machine
        self._pause_s = pause_s
        self._interval_s = interval_s

    def set_up(self, place):
        self._worker = place.servers.workers[self._machine]
        self._stopping = threading.Event()
        self._paused_at_s = []
        self._thread = None

    def begin(self):
        self._thread = threading.Thread(target=self._run, args=(time.monotonic(),))
        self._thread.start()

    def tear_down(self):
        self._stopping.set()
        if self._thread:
            self._thread.join()

    def facts(self):
        return {"pause_ms": 1e3 * self._pause_s, "paused_at_s": [round(at_s, 2) for at_s in self._paused_at_s]}

    def _run(self, began_s):
        due_s = min(_FIRST_PAUSE_S, self._interval_s)
        while not self._stopping.wait(max(0, began_s + due_s - time.monotonic())):
            self._paused_at_s.append(time.monotonic() - began_s)
            self._worker.send_signal(signal.SIGSTOP)
            self._stopping.wait(self._pause_s)
            self._worker.send_signal(signal.SIGCONT)
            due_s += self._interval_s


class BadPath(Fault):
    """Loses a share of the packets that some machines send, and delays another share, so that other packets overtake
    them. If `machines` is empty, all machines do.

        The switch selects the packets with nftables when they arrive from a machine. It drops the lost packets,
    and forwards the late ones to a detour. There late_packets.py holds them for a moment, and then sends them to the
    switch's shallow port. Rejected: netem, because the kernels of many containers lack it; a filter on the machine
    itself, because TCP notices the drop and does not count the packet as sent; a tiny tbf queue, because it drops in
    bursts.
    """

    def __init__(self, machines, loss, reorder):
        self._machines = machines
        self._loss = loss
        self._reorder = reorder

    def set_up(self, place):
        if not shutil.which("nft"):
            raise Unsupported("missing tool: nft; on Debian: apt-get install nftables")
        self._place = place
        self._machines = self._machines or range(len(place.network.machines))
        self._forwarder = None
        self._rules = None
        if self._reorder:
            self._start_forwarder()

    def begin(self):
        rules = [(self._loss, "drop")] if self._loss else []
        # The second rule applies only to packets that the first has not dropped.
        rules += [(self._reorder / (1 - self._loss), f'fwd to "{_DETOUR}"')] if self._reorder else []
        lines = "\n".join(
            f"ip protocol tcp numgen random mod 1000000 < {round(1e6 * share)} counter {verdict}" for share, verdict in rules
        )
        devices = ", ".join(f'"{self._place.network.machine_port(machine)}"' for machine in self._machines)
        hook = f"type filter hook ingress devices = {{ {devices} }} priority 0;"
        file = self._place.folder / "faults.nft"
        file.write_text(f"table netdev faults {{\nchain path {{\n{hook}\n{lines}\n}}\n}}\n")
        try:
            self._nft("-f", str(file))
        except RuntimeError as error:
            reason = f"this kernel cannot drop packets at random (options NF_TABLES_NETDEV, NFT_NUMGEN): {error}"
            raise Unsupported(reason) from None

    def tear_down(self):
        if "faults" in self._nft("list", "tables"):
            self._rules = json.loads(self._nft("-j", "list", "chain", "netdev", "faults", "path"))["nftables"]
            self._nft("delete", "table", "netdev", "faults")
        if self._forwarder:
            self._forwarder.kill()
            self._ethtool("on")
            _ip(self._place, self._place.network.switch, "link", "del", _DETOUR)

    def facts(self):
        counted = {"dropped_packets": 0, "late_packets": 0}
        for rule in [entry["rule"]["expr"] for entry in self._rules or [] if "rule" in entry]:
            packets = next(part["counter"]["packets"] for part in rule if "counter" in part)
            counted["dropped_packets" if {"drop": None} in rule else "late_packets"] = packets
        return {"loss": self._loss, "reorder": self._reorder, **counted}

    def _start_forwarder(self):
        # The machines must compute checksums: a program that forwards packets cannot leave them to the device.
        self._ethtool("off")
        network = self._place.network
        _ip(self._place, network.switch, "link", "add", _DETOUR, "type", "veth", "peer", "name", _DETOUR_END)
        for device in (_DETOUR, _DETOUR_END):
            _ip(self._place, network.switch, "link", "set", device, "up")
        ready = self._place.folder / "late-packets.ready"
        ready.unlink(missing_ok=True)
        script = pathlib.Path(__file__).with_name("late_packets.py")
        argv = [sys.executable, script, ready, _DETOUR_END, PORT, _LATE_S]
        self._forwarder = Program(network, network.switch, argv, self._place.folder / "late-packets.log")
        self._forwarder.wait_until_ready(ready)

    def _ethtool(self, state):
        network = self._place.network
        for machine in self._machines:
            _run(self._place, network.machines[machine], "ethtool", "-K", network.device, "tx", state)

    def _nft(self, *arguments):
        return _run(self._place, self._place.network.switch, "nft", *arguments)


def _ip(place, host, *arguments):
    return _run(place, host, "ip", *arguments)


def _run(place, host, *argv):
    return run_to_end(place.network.command(host, argv), " ".join(map(str, argv)))
