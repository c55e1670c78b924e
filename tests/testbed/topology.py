"""The network: an aggregator and machines of workers, joined by a switch with one shallow port.

    workers-0 --\\
    workers-1 ---> switch (bridge) ==[ tbf: rate, buffer ]==> aggregator
    ...       --/
"""

import json
import os
import subprocess

from sandbox import Unsupported
from scenario import FRAME_BYTES, MTU_BYTES

AGGREGATOR = "aggregator"
SWITCH = "switch"
PORT = "to-aggregator"  # the switch's shallow port
AGGREGATOR_ADDRESS = "10.77.0.1"
_SUBNET = "10.77.0.0/24"
_UPLINK = "eth0"  # of every host
_ACCESS_LIMIT_BYTES = 16 << 20  # a host's own queue: it delays, it does not drop
_BASE_PORT = 20000


def machine_name(machine):
    return f"workers-{machine}"


def machine_address(machine):
    return f"10.77.0.{machine + 2}"


class Network:
    """One test network from construction to close(). One at a time in a sandbox."""

    def __init__(self, link):
        self._link = link
        self.machines = [machine_name(machine) for machine in range(link.machine_count())]
        self._namespaces = [SWITCH, AGGREGATOR, *self.machines]
        self._build()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for namespace in self._namespaces:
            _run(["ip", "netns", "delete", namespace], check=False)

    def worker_addresses(self):
        """host:port of every worker, in the order of the stripe: neighbours in the stripe are on different machines."""
        count = len(self.machines)
        return [f"{machine_address(w % count)}:{_BASE_PORT + w // count}" for w in range(self._link.workers)]

    def machine_listens(self, machine):
        return self.worker_addresses()[machine :: len(self.machines)]

    def set_buffer(self, buffer_bytes):
        """Of the shallow port, from now on; what it holds stays."""
        link = self._link
        argv = ["tc", "-n", SWITCH, "qdisc", "change", "dev", PORT, "root", "tbf", "rate", f"{link.rate_bps}bit"]
        _run([*argv, "burst", str(link.burst_bytes), "limit", str(buffer_bytes)])

    def command(self, namespace, argv):
        return ["ip", "netns", "exec", namespace, *argv]

    def facts(self):
        """Settings as the kernel has them now, the same on every host; an error where it has not taken one."""
        facts = [self._host_facts(host) for host in self._namespaces if host != SWITCH]
        if any(fact != facts[0] for fact in facts):
            raise RuntimeError(f"hosts of the test network differ in their settings: {facts}")
        wanted = {
            "congestion_control": self._link.congestion_control,
            "rto_min_ms": self._link.rto_min_ms,
            "mtu_bytes": MTU_BYTES,
            "offloads": "off",
        }
        for name, value in wanted.items():
            if facts[0][name] != value:
                raise RuntimeError(f"{name} is {facts[0][name]!r} where {value!r} was set")
        return facts[0]

    def live_congestion_controls(self):
        """What the connections of the workers run at this moment, in the kernel's own words."""
        words = {word for host in self.machines for word in _in(host, "ss", "-tinH", "state", "established").split()}
        return sorted(words & {"cubic", "reno", "bbr"})

    def _build(self):
        for namespace in self._namespaces:
            result = _run(["ip", "netns", "add", namespace], check=False)
            if result.returncode != 0:
                raise Unsupported(f"cannot make a network namespace: {result.stderr.strip()}")
            _ip(namespace, "link", "set", "lo", "up")
            self._set_sysctls(namespace)
        _ip(SWITCH, "link", "add", "bridge", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip(SWITCH, "link", "set", "bridge", "up")
        self._connect(AGGREGATOR, PORT, AGGREGATOR_ADDRESS)
        for machine, name in enumerate(self.machines):
            self._connect(name, f"to-{name}", machine_address(machine))
        rate, burst = self._link.rate_bps, self._link.burst_bytes
        _shape(SWITCH, PORT, rate, burst, self._link.buffer_bytes)
        _shape(AGGREGATOR, _UPLINK, rate, burst, _ACCESS_LIMIT_BYTES)
        for name in self.machines:
            _shape(name, _UPLINK, self._link.access_rate(), 2 * FRAME_BYTES, _ACCESS_LIMIT_BYTES)

    def _set_sysctls(self, namespace):
        wanted = {
            # For loopback, between a client and the aggregator: the same on every machine, whatever its default is.
            "net.ipv4.tcp_congestion_control": "reno",
            "net.ipv4.tcp_no_metrics_save": 1,  # else one run's losses teach the next one
            "net.core.somaxconn": 4096,
            "net.ipv4.tcp_max_syn_backlog": 4096,
        }
        argv = ["sysctl", "-q", "-w", *(f"{key}={value}" for key, value in wanted.items())]
        result = _run(["ip", "netns", "exec", namespace, *argv], check=False)
        if result.returncode != 0:
            raise Unsupported(f"this kernel does not take the settings of the network: {result.stderr.strip()}")
        # Neighbour discovery would put packets into the port that nobody asked for. A kernel without IPv6 has no such key.
        _run(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"], check=False)

    def _connect(self, host, port, address):
        result = _run(
            ["ip", "-n", host, "link", "add", _UPLINK, "mtu", str(MTU_BYTES), "type", "veth"]
            + ["peer", "name", port, "mtu", str(MTU_BYTES), "netns", SWITCH],
            check=False,
        )
        if result.returncode != 0:
            raise Unsupported(f"cannot make a veth pair: {result.stderr.strip()}")
        for namespace, device in ((host, _UPLINK), (SWITCH, port)):
            # With offloads on, one "packet" in the buffer would be up to 64 KB.
            _in(namespace, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off")
            _keep_flows_in_order(namespace, device)
        _ip(SWITCH, "link", "set", port, "master", "bridge", "up")
        _ip(host, "addr", "add", f"{address}/24", "dev", _UPLINK)
        _ip(host, "link", "set", _UPLINK, "up")
        self._set_route(host, address)

    def _set_route(self, host, address):
        # Congestion control by route: the sysctl of a namespace takes only what the machine's owner allows to everyone
        # (net.ipv4.tcp_allowed_congestion_control), and that need not include CUBIC.
        control = self._link.congestion_control
        result = _run(
            ["ip", "-n", host, "route", "replace", _SUBNET, "dev", _UPLINK, "proto", "kernel", "scope", "link"]
            + ["src", address, "rto_min", f"{self._link.rto_min_ms}ms", "congctl", "lock", control],
            check=False,
        )
        if result.returncode != 0:
            available = _sysctl(host, "net.ipv4.tcp_available_congestion_control")
            raise Unsupported(f"congestion control {control} (this kernel has: {available}): {result.stderr.strip()}")

    def _host_facts(self, host):
        route = _ip(host, "route", "show", _SUBNET).split()
        device = json.loads(_ip(host, "-j", "link", "show", "dev", _UPLINK))[0]
        return {
            "congestion_control": _route_attribute(route, "congctl"),
            "rto_min_ms": _milliseconds(_route_attribute(route, "rto_min")),
            "mtu_bytes": device["mtu"],
            "offloads": _offloads(_in(host, "ethtool", "-k", _UPLINK)),
            "tcp_no_metrics_save": int(_sysctl(host, "net.ipv4.tcp_no_metrics_save")),
            "tcp_slow_start_after_idle": int(_sysctl(host, "net.ipv4.tcp_slow_start_after_idle")),
        }


def _keep_flows_in_order(namespace, device):
    # As the receive queues of a network card do: one flow, one processor. Without it two processors may hand packets of
    # one connection over at the same time, and TCP takes those that were overtaken for lost. Not every kernel has it.
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
