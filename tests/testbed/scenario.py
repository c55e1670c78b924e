"""What one measurement is about: the network, the load and the policy, as plain values."""

import dataclasses

MTU_BYTES = 1500
FRAME_BYTES = MTU_BYTES + 14  # what a queueing discipline counts of a full packet: no checksum, no preamble
TCP_PAYLOAD_BYTES = MTU_BYTES - 52  # IPv4 and TCP with timestamps

POLICIES = ("unscheduled", "batches", "rolling", "grants")

# Data that is read again is read from memory by the workers; this much of it is enough to catch a block that is
# delivered twice or in the wrong place.
_SOURCE_BYTES_AT_MOST = 32 << 20


@dataclasses.dataclass(frozen=True)
class LinkScenario:
    """The network: how many workers, and the switch port that they share."""

    workers: int
    rate_bps: int
    buffer_bytes: int
    congestion_control: str = "cubic"
    access_rate_bps: int = 0  # of each machine of workers; 0: ten times the rate
    machines: int = 8  # at most this many namespaces hold the workers
    rto_min_ms: int = 200
    rtt_us: int = 200  # told to the model; the namespaces themselves add some tens of microseconds

    @property
    def burst_bytes(self):
        # The token bucket of the shaper, which adds to the buffer: the least that keeps a busy port at its rate. With two
        # frames the shaper's timer falls up to 1 % behind when the programs under test keep both cores busy.
        return 3 * FRAME_BYTES

    def machine_count(self):
        return min(self.machines, self.workers)

    def access_rate(self):
        return self.access_rate_bps or 10 * self.rate_bps


@dataclasses.dataclass(frozen=True)
class ReadScenario:
    """The load: striped data, who reads it, and by which policy the aggregator asks for it."""

    link: LinkScenario
    policy: str
    sru_bytes: int
    blocks: int
    clients: int = 1
    think_ms: float = 0
    warmup_blocks: int = 2
    timeout_s: int = 1800

    @property
    def block_bytes(self):
        return self.sru_bytes * self.link.workers

    def source_blocks(self):
        return max(1, min(self.blocks, _SOURCE_BYTES_AT_MOST // self.block_bytes))


def wire_bytes(payload_bytes):
    """What a response takes in the buffer, headers included."""
    packets = -(-payload_bytes // TCP_PAYLOAD_BYTES)
    return payload_bytes + packets * (FRAME_BYTES - TCP_PAYLOAD_BYTES)
