"""The network: an aggregator and machines of workers, joined by a switch with one shallow port.

    workers-0 --\\
    workers-1 ---> switch (bridge) ==[ tbf: rate, buffer ]==> aggregator
    ...       --/

A tree has one such network for each aggregator. The aggregator of a lower network is a machine of the upper network.
"""

import dataclasses
import json
import os
import subprocess

from sandbox import Unsupported
from scenario import FRAME_BYTES, MTU_BYTES

AGGREGATOR = "aggregator"
SWITCH = "switch"
PORT = "to-aggregator"  # the switch's shallow port
AGGREGATOR_ADDRESS = "10.77.0.1"
_ACCESS_LIMIT_BYTES = 16 << 20  # the queue of a host: it delays packets and does not drop them
_BASE_PORT = 20000


def machine_address(machine):
    return Site().address(machine + 2)


@dataclasses.dataclass(frozen=True)
class Site:
    """The names and addresses of one network, so that several networks can exist at once."""

    aggregator: str = AGGREGATOR
    aggregator_is_there: bool = False  # the aggregator is also a host of another network
    switch: str = SWITCH
    machine_prefix: str = "workers-"
    subnet: str = "10.77.0"
    device: str = "eth0"  # of every host

    def address(self, host):
        return f"{self.subnet}.{host}"

    @property
    def subnet_mask(self):
        return f"{self.subnet}.0/24"


class Network:
    """One test network from construction to close(). A sandbox holds one network of a site at a time."""

    def __init__(self, link, site=Site()):
        self._link = link
        self._site = site
        self.switch = site.switch
        self.aggregator = site.aggregator
        self.machines = [f"{site.machine_prefix}{machine}" for machine in range(link.machine_count())]
        self._hosts = [site.aggregator, *self.machines]
        self._namespaces = [site.switch, *self._hosts[site.aggregator_is_there :]]
        self._others = []  # of add_host
        self._build()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for namespace in [*self._namespaces, *self._others]:
            _run(["ip", "netns", "delete", namespace], check=False)

    def add_host(self, name, congestion_control=None):
        """Adds a host that is not one of `machines`, and may have a congestion control of its own. Returns its
        address."""
        address = self._site.address(len(self.machines) + 2 + len(self._others))
        self._add_namespace(name)
        self._others.append(name)
        self._connect(name, f"to-{name}", address, congestion_control)
        # The aggregator may have an ARP entry of a removed host with this address.
        _ip(self.aggregator, "neigh", "flush", "to", address)
        _shape(name, self._site.device, self._link.access_rate(), 2 * FRAME_BYTES, _ACCESS_LIMIT_BYTES)
        return address

    def remove_host(self, name):
        """Removes a host that add_host has added, and its device in the switch."""
        self._others.remove(name)
        # The kernel removes the devices of a namespace some time after the namespace.
        _run(["ip", "-n", self.switch, "link", "delete", f"to-{name}"], check=False)
        _run(["ip", "netns", "delete", name])

    def worker_addresses(self):
        """Returns host:port of every worker, in the order of the stripe. Neighbours in the stripe are on different
        machines."""
        count = len(self.machines)
        return [f"{self._site.address(w % count + 2)}:{_BASE_PORT + w // count}" for w in range(self._link.workers)]

    def victim_address(self):
        """Returns host:port on the first machine, where workers run, too."""
        return f"{self._site.address(2)}:{_BASE_PORT - 1}"

    def machine_listens(self, machine):
        return self.worker_addresses()[machine :: len(self.machines)]

    def set_buffer(self, buffer_bytes):
        """Changes the buffer of the shallow port. Packets that it already holds stay."""
        link = self._link
        argv = ["tc", "-n", self.switch, "qdisc", "change", "dev", PORT, "root", "tbf", "rate", f"{link.rate_bps}bit"]
        _run([*argv, "burst", str(link.burst_bytes), "limit", str(buffer_bytes)])

    @property
    def access_rate_bps(self):
        """Returns the rate of a healthy machine of workers."""
        return self._link.access_rate()

    def set_access_rate(self, machine, rate_bps):
        """Changes the rate of one machine of workers. Its queue is longer than the send buffer of one connection, so
        that it drops nothing."""
        _shape(self.machines[machine], self._site.device, rate_bps, 2 * FRAME_BYTES, _ACCESS_LIMIT_BYTES)

    def machine_port(self, machine):
        """Returns the name of the switch's device that leads to one machine of workers."""
        return f"to-{machine}"

    @property
    def device(self):
        """Returns the name of the device of every host."""
        return self._site.device

    def command(self, namespace, argv):
        return ["ip", "netns", "exec", namespace, *argv]

    def facts(self):
        """Returns the settings that the kernel has now, which must be the same on every host. Raises an error if the
        kernel has not taken a setting."""
        facts = [self._host_facts(host) for host in self._hosts]
        if any(fact != facts[0] for fact in facts):
            raise RuntimeError(f"hosts of the test network differ in their settings: {facts}")
        wanted = {
            "congestion_control": self._link.congestion_control,
            "rto_min_ms": self._link.rto_min_ms,
            "quick_acks": self._link.quick_acks,
            "mtu_bytes": MTU_BYTES,
            "offloads": "off",
        }
        for name, value in wanted.items():
            if facts[0][name] != value:
                raise RuntimeError(f"{name} is {facts[0][name]!r} where {value!r} was set")
        return facts[0]

    def live_congestion_controls(self, *hosts):
        """Returns the congestion controls of the connections of these hosts, by default the workers', to the aggregator
        at this moment, by the kernel's names."""
        argv = ["ss", "-tinH", "state", "established", "dst", self._site.address(1)]
        words = {word for host in hosts or self.machines for word in _in(host, *argv).split()}
        return sorted(words & {"cubic", "reno", "bbr"})

    def _build(self):
        for namespace in self._namespaces:
            self._add_namespace(namespace)
        _ip(self.switch, "link", "add", "bridge", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip(self.switch, "link", "set", "bridge", "up")
        self._connect(self.aggregator, PORT, self._site.address(1))
        for machine, name in enumerate(self.machines):
            self._connect(name, self.machine_port(machine), self._site.address(machine + 2))
        rate, burst = self._link.rate_bps, self._link.burst_bytes
        _shape(self.switch, PORT, rate, burst, self._link.buffer_bytes)
        _shape(self.aggregator, self._site.device, rate, burst, _ACCESS_LIMIT_BYTES)
        for name in self.machines:
            _shape(name, self._site.device, self._link.access_rate(), 2 * FRAME_BYTES, _ACCESS_LIMIT_BYTES)

    def _add_namespace(self, namespace):
        result = _run(["ip", "netns", "add", namespace], check=False)
        if result.returncode != 0:
            raise Unsupported(f"cannot make a network namespace: {result.stderr.strip()}")
        _ip(namespace, "link", "set", "lo", "up")
        self._set_sysctls(namespace)

    def _set_sysctls(self, namespace):
        wanted = {
            # The control of loopback, between a client and the aggregator, must be the same on every machine, whatever
            # its default.
            "net.ipv4.tcp_congestion_control": "reno",
            "net.ipv4.tcp_no_metrics_save": 1,  # otherwise TCP would reuse the metrics of earlier runs
            "net.core.somaxconn": 4096,
            "net.ipv4.tcp_max_syn_backlog": 4096,
        }
        argv = ["sysctl", "-q", "-w", *(f"{key}={value}" for key, value in wanted.items())]
        result = _run(["ip", "netns", "exec", namespace, *argv], check=False)
        if result.returncode != 0:
            raise Unsupported(f"this kernel does not take the settings of the network: {result.stderr.strip()}")
        # A kernel without IPv6 or without filters for bridges lacks these keys. Neighbour discovery would put extra
        # packets into the port, and filters cost CPU time in a switch that has nothing to filter.
        for setting in ("net.ipv6.conf.all.disable_ipv6=1", "net.bridge.bridge-nf-call-iptables=0"):
            _run(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", setting], check=False)

    def _connect(self, host, port, address, congestion_control=None):
        result = _run(
            ["ip", "-n", host, "link", "add", self._site.device, "mtu", str(MTU_BYTES), "type", "veth"]
            + ["peer", "name", port, "mtu", str(MTU_BYTES), "netns", self.switch],
            check=False,
        )
        if result.returncode != 0:
            raise Unsupported(f"cannot make a veth pair: {result.stderr.strip()}")
        for namespace, device in ((host, self._site.device), (self.switch, port)):
            # With offloads, one "packet" in the buffer could have 64 KB.
            _in(namespace, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off")
            _keep_flows_in_order(namespace, device)
        _ip(self.switch, "link", "set", port, "master", "bridge", "up")
        _ip(host, "addr", "add", f"{address}/24", "dev", self._site.device)
        _ip(host, "link", "set", self._site.device, "up")
        self._set_route(host, address, congestion_control or self._link.congestion_control)

    def _set_route(self, host, address, control):
        # Set congestion control by route. The sysctl of a namespace accepts only the controls that the machine's owner
        # allows for everyone (net.ipv4.tcp_allowed_congestion_control), which may not include CUBIC.
        result = _run(
            ["ip", "-n", host, "route", "replace", self._site.subnet_mask, "dev", self._site.device]
            + ["proto", "kernel", "scope", "link"]
            + ["src", address, "rto_min", f"{self._link.rto_min_ms}ms", "congctl", "lock", control]
            + (["quickack", "1"] if self._link.quick_acks else []),
            check=False,
        )
        if result.returncode != 0:
            available = _sysctl(host, "net.ipv4.tcp_available_congestion_control")
            raise Unsupported(f"congestion control {control} (this kernel has: {available}): {result.stderr.strip()}")

    def _host_facts(self, host):
        route = _ip(host, "route", "show", self._site.subnet_mask).split()
        device = json.loads(_ip(host, "-j", "link", "show", "dev", self._site.device))[0]
        return {
            "congestion_control": _route_attribute(route, "congctl"),
            "rto_min_ms": _milliseconds(_route_attribute(route, "rto_min")),
            "quick_acks": _route_attribute(route, "quickack") == "1",
            "mtu_bytes": device["mtu"],
            "offloads": _offloads(_in(host, "ethtool", "-k", self._site.device)),
            "tcp_no_metrics_save": int(_sysctl(host, "net.ipv4.tcp_no_metrics_save")),
            "tcp_slow_start_after_idle": int(_sysctl(host, "net.ipv4.tcp_slow_start_after_idle")),
        }


def _keep_flows_in_order(namespace, device):
    # Give each flow one CPU, as the receive queues of a network card do. Otherwise two CPUs may deliver packets of one
    # connection at the same time, and TCP takes the overtaken packets for lost. Some kernels lack this setting.
    processors = (1 << os.cpu_count()) - 1
    setting = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
    _run(["ip", "netns", "exec", namespace, "sh", "-c", f"echo {processors:x} > {setting}"], check=False)


def _shape(namespace, device, rate_bps, burst_bytes, limit_bytes):
    result = _run(
        ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{rate_bps}bit"]
        + ["burst", str(burst_bytes), "limit", str(limit_bytes)],
        check=False,
    )
    if result.returncode != 0:
        raise Unsupported(f"cannot shape a port with tbf (kernel option NET_SCH_TBF): {result.stderr.strip()}")


def _route_attribute(route, name):
    value = route.index(name) + 1 if name in route else 0
    return route[value + (route[value] == "lock")] if value else None


def _milliseconds(text):
    if text is None:
        return None
    return int(text.removesuffix("ms")) if text.endswith("ms") else round(float(text.removesuffix("s")) * 1000)


def _offloads(features):
    names = ("tcp-segmentation-offload:", "generic-segmentation-offload:", "generic-receive-offload:")
    states = [line.split()[1] for line in features.splitlines() if line.startswith(names)]
    return "off" if states == ["off"] * len(names) else f"tso, gso, gro: {states}"


def _sysctl(namespace, key):
    return _in(namespace, "sysctl", "-n", key).strip()


def _ip(namespace, *arguments):
    return _run(["ip", "-n", namespace, *arguments]).stdout


def _in(namespace, *argv):
    return _run(["ip", "netns", "exec", namespace, *argv]).stdout


def _run(argv, check=True):
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {result.stderr.strip() or result.stdout.strip()}")
    return result
