"""The parameters of one measurement: the network, the load and the policy, as plain values."""

import dataclasses

from units import format_mbps

MTU_BYTES = 1500
FRAME_BYTES = MTU_BYTES + 14  # a full packet as a queueing discipline counts it: no checksum, no preamble
TCP_PAYLOAD_BYTES = MTU_BYTES - 52  # without the headers of IPv4 and of TCP with timestamps

POLICIES = ("unscheduled", "batches", "rolling", "grants")
# Policies of fan-outs. "default" is the library's default, and "hand-written" is gRPC without Sluice.
FAN_OUT_POLICIES = (*POLICIES, "default", "hand-written")

# The workers read repeated data from memory. This much data is enough to detect a block that is delivered twice or in
# the wrong place.
_SOURCE_BYTES_AT_MOST = 32 << 20


@dataclasses.dataclass(frozen=True)
class LinkScenario:
    """The network: the number of workers, and the switch port that they share."""

    workers: int
    rate_bps: int
    buffer_bytes: int
    congestion_control: str = "cubic"
    access_rate_bps: int = 0  # of each machine of workers; 0: ten times the rate
    machines: int = 8  # maximum number of namespaces that hold the workers
    rto_min_ms: int = 200  # the kernel rounds it up to a multiple of its tick
    quick_acks: bool = False  # every host acknowledges each packet at once
    rtt_us: int = 200  # for the model; the namespaces themselves add some tens of microseconds
    paced: bool = False  # more bytes than the buffer may be on the way, if the model's path holds them
    told_buffer_bytes: int | None = None  # buffer that Sluice is configured with; None: the true buffer, 0: none

    @property
    def burst_bytes(self):
        # The shaper's token bucket adds to the buffer, so this is the smallest that keeps a busy port at its rate. With
        # two frames the shaper's timer falls up to 1 % behind when the programs under test keep both cores busy.
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
    """How long workers wait before they respond."""

    usual_ms: float = 0
    tail_ms: float = 0  # a share TAIL_SHARE of the responses takes this long instead; 0: no tail

    @property
    def tail_share(self):
        return TAIL_SHARE if self.tail_ms else 0

    def facts(self):
        return {"think_ms": self.usual_ms, "think_tail_ms": self.tail_ms, "think_tail_share": self.tail_share}


@dataclasses.dataclass(frozen=True)
class ReadScenario:
    """The load: striped data, its readers, and the aggregator's policy."""

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
    """Two levels: mid-level aggregators (MLAs), each with workers behind a port of its own, and a high-level
    aggregator (HLA) behind another port. All ports are alike."""

    aggregators: int
    link: LinkScenario  # link of one MLA
    policy: str
    sru_bytes: int  # SRU of the workers
    blocks: int
    clients: int = 1
    cache_blocks: int = 4  # of each MLA: small enough that every pass over the source reads from the workers
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
    """The load: fan-outs to servers without Sluice."""

    link: LinkScenario
    policy: str
    response_bytes: str  # one size, or two sizes with a colon between: a range to draw sizes from
    sizes_known: bool
    blocks: int
    clients: int = 1
    think: Think = Think()
    server: str = "cpp"
    replicas: int = 0
    hedge_after_ms: float = 0  # 0: no hedges
    in_flight: int = 0  # with hand-written: requests in flight at a time; 0: all
    stopped: int = 0  # servers that stop as the measured part starts; their kernels do not
    victim: bool = False  # also run another flow with small responses through the same port
    load: float = 0  # Poisson arrivals that offer this share of the link, for a fixed size; 0: closed loops
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


# How a client of unknown bytes reaches its servers: directly, or in tunnels of sluice-proxy.
TUNNEL_WAYS = ("direct", "forwarded", "scheduled")
STREAM_WAYS = (*TUNNEL_WAYS, "library")


@dataclasses.dataclass(frozen=True)
class TunnelScenario:
    """The load: one connection to each server."""

    link: LinkScenario
    way: str
    policy: str  # of the proxy
    response_bytes: int
    most_response_bytes: int  # 0: all responses are equal
    tls: bool
    alone: bool  # each connection goes on by itself
    blocks: int
    think: Think = Think()
    warmup_blocks: int = 2
    timeout_s: int = 1800

    @property
    def title(self):
        size = f"{self.response_bytes} B" + (f" to {self.most_response_bytes} B" if self.most_response_bytes else "")
        return f"{self.way}{' TLS' if self.tls else ''}: {self.link.workers} servers x {size}, {self.blocks} blocks, {self.link.title}"


# How a stock client reaches its workers: directly; through sluice-proxy, configured only by its environment; or by
# connecting to the proxy's address and naming the workers itself.
WAYS = ("direct", "proxy", "proxy-prior-knowledge")
CLIENTS = ("go", "python", "java")
PROXY_POLICIES = ("unscheduled", "rolling", "grants")


@dataclasses.dataclass(frozen=True)
class StockScenario:
    """The load: fan-outs of clients without Sluice, all at the same time."""

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
    """Several aggregators on one host, each with its own readers."""

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
    """Returns the bytes that a response occupies in the buffer, headers included."""
    packets = -(-payload_bytes // TCP_PAYLOAD_BYTES)
    return payload_bytes + packets * (FRAME_BYTES - TCP_PAYLOAD_BYTES)
