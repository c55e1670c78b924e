"""Kernel counters: the queue of the shallow port, TCP of the workers, CPU time."""

import dataclasses
import json
import os
import pathlib
import subprocess
import threading

from topology import PORT


@dataclasses.dataclass(frozen=True)
class PortState:
    sent_bytes: int
    sent_packets: int
    drops: int
    backlog_bytes: int


class PortMonitor:
    """Samples the shallow port from start to close, with one `tc` process that answers repeatedly, on a thread of
    its own.

    The queue may be longer between two samples, so the peak is a lower bound. Drops are the kernel's count.
    """

    def __init__(self, network, interval_s=0.1):
        self._interval_s = interval_s
        # A new tc process for every sample would take a tenth of a core.
        self._tc = subprocess.Popen(
            network.command(network.switch, ["tc", "-s", "-j", "-batch", "-"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()
        self._peak_backlog_bytes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stopping.set()
        self._thread.join()
        self._tc.stdin.close()
        self._tc.stdout.close()
        self._tc.wait()

    def state(self):
        with self._lock:
            self._tc.stdin.write(f"qdisc show dev {PORT}\n")
            self._tc.stdin.flush()
            qdisc = json.loads(self._tc.stdout.readline())[0]
            self._peak_backlog_bytes = max(self._peak_backlog_bytes, qdisc["backlog"])
        return PortState(qdisc["bytes"], qdisc["packets"], qdisc["drops"], qdisc["backlog"])

    def take_peak_backlog_bytes(self):
        with self._lock:
            peak, self._peak_backlog_bytes = self._peak_backlog_bytes, 0
        return peak

    def _watch(self):
        while not self._stopping.wait(self._interval_s):
            self.state()


# lib/tcp/tcp_ext.h explains these counters.
_TCP_EXT = {
    "timeouts": ("TCPTimeouts",),
    "timeouts_after_feedback": (
        "TCPSackFailures", "TCPRenoFailures", "TCPSackRecoveryFail", "TCPRenoRecoveryFail", "TCPLossFailures",
    ),
    "fast_recoveries": ("TCPSackRecovery", "TCPRenoRecovery"),
    "lost_retransmits": ("TCPLostRetransmit",),
    "spurious_timeouts": ("TCPSpuriousRTOs",),
    "loss_probes": ("TCPLossProbes",),
    "loss_probe_recoveries": ("TCPLossProbeRecovery",),
}  # fmt: skip


def tcp_counters(pid):
    """Returns the counters of the network namespace of a process."""
    net = pathlib.Path("/proc", str(pid), "net")
    extended = _protocol_counters(net / "netstat", "TcpExt:")
    counters = {name: sum(extended.get(part, 0) for part in parts) for name, parts in _TCP_EXT.items()}
    return {**counters, "retransmits": _protocol_counters(net / "snmp", "Tcp:")["RetransSegs"]}


def _protocol_counters(path, protocol):
    # Lines come in pairs: names, then values.
    names, values = (line.split()[1:] for line in path.read_text().splitlines() if line.startswith(protocol))
    return dict(zip(names, map(int, values)))


def cpu_seconds(pid):
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds():
    """Returns CPU seconds of all CPUs together since the machine started: busy, and in total."""
    # The columns are user, nice, system, idle, iowait, irq, softirq and steal. Guest time is part of user.
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) / hertz, sum(ticks) / hertz


def receive_queue_drops():
    """Returns the packets that this machine lost between two namespaces because it lacked CPU time. Counts the whole
    machine."""
    return sum(int(line.split()[1], 16) for line in pathlib.Path("/proc/net/softnet_stat").read_text().splitlines())
