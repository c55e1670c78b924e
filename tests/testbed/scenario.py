"""What one measurement is about: the network, the load and the policy, as plain values."""

import dataclasses

from units import format_mbps

MTU_BYTES = 1500
FRAME_BYTES = MTU_BYTES + 14  # what a queueing discipline counts of a full packet: no checksum, no preamble
TCP_PAYLOAD_BYTES = MTU_BYTES - 52  # IPv4 and TCP with timestamps

POLICIES = ("unscheduled", "batches", "rolling", "grants")
# Of fan-outs: what the library takes without being told, and gRPC without Sluice.
FAN_OUT_POLICIES = (*POLICIES, "default", "hand-written")

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
    rto_min_ms: int = 200  # the kernel rounds it up to its own ticks
    quick_acks: bool = False  # every packet is acknowledged at once
    rtt_us: int = 200  # told to the model; the namespaces themselves add some tens of microseconds
    told_buffer_bytes: int | None = None  # what Sluice is told of the buffer; None: the truth, 0: nothing

    @property
    def burst_bytes(self):
        # The token bucket of the shaper, which adds to the buffer: the least that keeps a busy port at its rate. With two
        # frames the shaper's timer falls up to 1 % behind when the programs under test keep both cores busy.
        return 3 * FRAME_BYTES

    @property
    def title(self):
        return (
            f"{format_mbps(self.rate_bps)}, buffer {self.buffer_bytes} B, {self.congestion_control}, "
            f"RTO_min {self.rto_min_ms} ms{', quick ACKs' if self.quick_acks else ''}"
        )

    def machine_count(self):
        return min(self.machines, self.workers)

    def access_rate(self):
        return self.access_rate_bps or 10 * self.rate_bps

    def told_buffer(self):
        return self.buffer_bytes if self.told_buffer_bytes is None else self.told_buffer_bytes

    def facts(self):
        return {
            "workers": self.workers,
            "rate_bps": self.rate_bps,
            "buffer_bytes": self.buffer_bytes,
            "told_buffer_bytes": self.told_buffer(),
            "burst_bytes": self.burst_bytes,
            "access_rate_bps": self.access_rate(),
        }


TAIL_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class Think:
    """How long workers think before they answer."""

    usual_ms: float = 0
    tail_ms: float = 0  # a share TAIL_SHARE of the answers takes so long instead; 0: there is no tail

    @property
    def tail_share(self):
        return TAIL_SHARE if self.tail_ms else 0

    def facts(self):
        return {"think_ms": self.usual_ms, "think_tail_ms": self.tail_ms, "think_tail_share": self.tail_share}


@dataclasses.dataclass(frozen=True)
class ReadScenario:
    """The load: striped data, who reads it, and by which policy the aggregator asks for it."""

    link: LinkScenario
    policy: str
    sru_bytes: int
    blocks: int
    clients: int = 1
    think: Think = Think()
    warmup_blocks: int = 2
    timeout_s: int = 1800

    @property
    def title(self):
        return f"{self.policy}: {self.link.workers} workers x {self.sru_bytes} B, {self.blocks} blocks, {self.link.title}"

    @property
    def block_bytes(self):
        return self.sru_bytes * self.link.workers

    def source_blocks(self):
        return max(1, min(self.blocks, _SOURCE_BYTES_AT_MOST // self.block_bytes))


@dataclasses.dataclass(frozen=True)
class TreeScenario:
    """Two levels: mid-level aggregators (MLAs), each with workers behind a port of its own, and a high-level one (HLA)
    behind another. All ports are alike."""

    aggregators: int
    link: LinkScenario  # of one MLA
    policy: str
    sru_bytes: int  # of the workers
    blocks: int
    clients: int = 1
    cache_blocks: int = 4  # of each MLA: so few that every lap over the source is read from the workers
    warmup_blocks: int = 2
    timeout_s: int = 600

    @property
    def title(self):
        return (
            f"{self.policy}: {self.aggregators} MLAs x {self.link.workers} workers x {self.sru_bytes} B, {self.blocks} blocks, "
            f"{self.link.title}"
        )

    @property
    def upper_sru_bytes(self):
        return self.sru_bytes * self.link.workers

    @property
    def block_bytes(self):
        return self.upper_sru_bytes * self.aggregators

    def upper_link(self):
        return dataclasses.replace(self.link, workers=self.aggregators, machines=self.aggregators)

    def source_blocks(self):
        return max(2 * self.cache_blocks, min(self.blocks, _SOURCE_BYTES_AT_MOST // self.block_bytes))


@dataclasses.dataclass(frozen=True)
class AnswerScenario:
    """The load: fan-outs to servers that know nothing of Sluice."""

    link: LinkScenario
    policy: str
    response_bytes: str  # a size, or two with a colon: a range that sizes are drawn from
    sizes_known: bool
    blocks: int
    clients: int = 1
    think: Think = Think()
    server: str = "cpp"
    replicas: int = 0
    hedge_after_ms: float = 0  # 0: no hedges
    in_flight: int = 0  # of hand-written: requests that are out at a time; 0: all
    victim: bool = False  # another flow asks for little through the same port
    load: float = 0  # Poisson arrivals that offer this share of the link, for a size that is fixed; 0: closed loops
    warmup_blocks: int = 2
    timeout_s: int = 1800

    @property
    def title(self):
        cap = f" ({self.in_flight} in flight)" if self.in_flight else ""
        load = f", load {self.load:g}" if self.load else ""
        return (
            f"{self.policy}{cap}{load}: {self.link.workers} {self.server} servers x {self.response_bytes} B, {self.blocks} blocks, "
            f"{self.link.title}"
        )

    def arrivals_per_s(self):
        return self.load * self.link.rate_bps / 8 / (self.link.workers * wire_bytes(int(self.response_bytes)))


# How a stock client reaches its workers: by itself; through sluice-proxy, by nothing but its environment; or at an address
# of the proxy, as one that names the workers itself.
WAYS = ("direct", "proxy", "proxy-prior-knowledge")
CLIENTS = ("go", "python", "java")
PROXY_POLICIES = ("unscheduled", "rolling", "grants")


@dataclasses.dataclass(frozen=True)
class StockScenario:
    """The load: fan-outs of clients that know nothing of Sluice, all at the same time."""

    link: LinkScenario
    way: str
    policy: str  # of the proxy
    clients: tuple  # one or more of CLIENTS
    response_bytes: int
    blocks: int
    readers: int = 1  # of each client
    think: Think = Think()
    warmup_blocks: int = 2
    timeout_s: int = 1800

    @property
    def title(self):
        way = self.way if self.way == "direct" else f"{self.way} ({self.policy})"
        return (
            f"{'+'.join(self.clients)}, {way}: {self.link.workers} workers x {self.response_bytes} B, {self.blocks} blocks, "
            f"{self.link.title}"
        )


FAULTS = ("none", "kill-client", "kill-daemon", "stop-client")


@dataclasses.dataclass(frozen=True)
class ShareScenario:
    """Several aggregators on one host, each with readers of its own."""

    reads: ReadScenario
    weights: list
    daemon: bool
    mode: str
    lease_time: str
    fault: str
    busy_s: float

    @property
    def title(self):
        weights = ":".join(f"{weight:g}" for weight in self.weights)
        divided = f"sluice-link ({self.mode})" if self.daemon else "no daemon"
        return f"{len(self.weights)} processes {weights}, {divided}, fault {self.fault}; {self.reads.title}"


def wire_bytes(payload_bytes):
    """What a response takes in the buffer, headers included."""
    packets = -(-payload_bytes // TCP_PAYLOAD_BYTES)
    return payload_bytes + packets * (FRAME_BYTES - TCP_PAYLOAD_BYTES)
