"""The scenarios of bad-workers: the groups of fan-outs, the fault, and the bounds on its cost to the others."""

import copy
import dataclasses

from bad_worker_faults import BadPath, DeadAddresses, Fault, LostLinks, Pauses, SlowSenders
from flags import link_of
from scenario import LinkScenario

# With "tunnel" the servers speak no gRPC, and their clients reach them by CONNECT through the proxy. With "go" and
# "direct" clients and servers are stock ones in Go, with the proxy and without.
WAYS = ("library", "proxy", "tunnel", "go", "direct")
_CPP_WAYS = ("library", "proxy", "tunnel")
POLICIES = ("unscheduled", "rolling", "grants")
HAND_WRITTEN = "hand-written"  # in place of a policy: gRPC's own client, without Sluice

# The load without other workers, with healthy ones, and with bad ones.
ALONE, HEALTHY, BAD = VARIANTS = ("alone", "healthy", "bad")
SMALL = "small"  # the group that the bad workers must not harm
OTHER = "other"  # the group of the bad workers

_LARGE_S = 32  # time that a slow worker needs for the large response
_LARGE_BYTES_AT_MOST = 25_000_000
_FAN_OUT_TIMEOUT_S = 60  # longer than the measured part: a stall must show as a long fan-out, and not as an error
_DEAD_TIMEOUT_S = 10
_DEAD_INTERVAL_S = 0.1  # a call fails at once if the last attempt to connect failed
# The kernel needs 9 s to detect a lost link (TCP_USER_TIMEOUT), and an attempt to connect again takes 5 s.
_RACK_S = 25
MEGABYTE = 1 << 20
_SCAN_CALLS = 1024
_SMALL_CALLS = 10
_CLASS_WEIGHT = 3  # of small, if that of other is 1
_MIXED_INTERVAL_S = 0.08  # 32 responses of 10 KB take a third of it
_OVERFLOW = 8  # budget over buffer, to make the port overflow


@dataclasses.dataclass(frozen=True)
class Group:
    """A LoadGroup of group_load.proto."""

    name: str
    workers: tuple  # host:port, or the number of a worker of the network
    response_bytes: int
    readers: int = 1
    messages: int = 1
    interval_s: float = 0
    fan_outs: int = 0
    timeout_s: float = _FAN_OUT_TIMEOUT_S
    merge_s: float = 0
    traffic_class: str = ""
    warm_up: bool = True
    tunnel: bool = False  # to byte_servers, through the proxy
    fan_out: str = ""
    unknown_sizes: bool = False
    start_s: float = 0
    think_s: float = 0
    error_details_bytes: int = 0

    def config(self, addresses):
        workers = [worker if isinstance(worker, str) else addresses[worker] for worker in self.workers]
        config = {**dataclasses.asdict(self), "workers": workers}
        del config["tunnel"]
        # Earlier builds do not have these fields.
        for name in ("traffic_class", "fan_out", "unknown_sizes", "start_s", "think_s", "error_details_bytes"):
            if not config[name]:
                del config[name]
        return config


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    groups: tuple
    fault: Fault = Fault()
    budget_bytes: int = 0  # 0: adapts
    policy: str = ""  # instead of the run's policy
    classes: tuple = ()  # pairs of name and weight
    tunnels_class: str = ""  # of all tunnels of the proxy


@dataclasses.dataclass(frozen=True)
class Bound:
    """A limit for a figure of the variant with bad workers."""

    figure: str  # a name in bad_worker_summary.figures_of
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value):
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    @property
    def text(self):
        bounds = [(">=", self.at_least), ("<=", self.at_most)]
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


@dataclasses.dataclass(frozen=True)
class Scenario:
    link: LinkScenario
    variants: tuple
    bounds: tuple
    seconds: float = 10
    ways: tuple = ("library", "proxy")
    default_policies: tuple = ("grants",)
    shown: tuple = ()  # figures without a bound that are also printed

    def tunnel_workers(self):
        groups = {group for variant in self.variants for group in variant.groups if group.tunnel}
        return {worker for group in groups for worker in group.workers}


def _harm(control, goodput, p99):
    return (Bound(f"goodput_over_{control}", at_least=goodput), Bound(f"p99_over_{control}", at_most=p99))


def link_of_flags(flags, workers, machines=None, rate_bps=10**8, buffer_bytes=32 * 1024):
    """Returns the link of the flags, with the defaults of a scenario. Without `machines`, each worker has its own
    machine."""
    chosen = copy.copy(flags)
    chosen.workers = flags.workers or workers
    chosen.rate = flags.rate or rate_bps
    chosen.buffer = flags.buffer or buffer_bytes
    return dataclasses.replace(link_of(chosen), machines=machines or chosen.workers)


def busy(flags, workers):
    """Returns fan-outs that use the whole link."""
    return Group(SMALL, tuple(workers), flags.response or 10240, readers=2)


def _paced(flags, workers):
    """Returns small fan-outs at a fixed rate. The link is nearly idle, so a gap between them is the cost of a fault."""
    return Group(SMALL, tuple(workers), flags.response or 200, interval_s=flags.interval / 1e3)


def _three(small, other, fault, budget_bytes=0):
    return (
        Variant(ALONE, (small,), budget_bytes=budget_bytes),
        Variant(HEALTHY, (small, other), budget_bytes=budget_bytes),
        Variant(BAD, (small, other), fault, budget_bytes),
    )


def _slow_rate(flags, link):
    return flags.slow_rate or link.rate_bps // 100


def _slow_once(flags):
    link = link_of_flags(flags, workers=16)
    rate_bps = _slow_rate(flags, link)
    large = flags.large or min(rate_bps * _LARGE_S // 8, _LARGE_BYTES_AT_MOST)
    other = Group(OTHER, (0,), large, fan_outs=1, warm_up=False)
    variants = _three(busy(flags, range(1, link.workers)), other, SlowSenders([0], rate_bps), flags.budget)
    return Scenario(link, variants, _harm(HEALTHY, 0.97, 1.15), ways=_CPP_WAYS)


def _slow_again(flags):
    link = link_of_flags(flags, workers=16)
    slow = range(flags.slow_workers)
    other = Group(OTHER, tuple(slow), flags.again, readers=flags.slow_readers, warm_up=False)
    small = busy(flags, range(flags.slow_workers, link.workers))
    variants = _three(small, other, SlowSenders(slow, _slow_rate(flags, link)), flags.budget)
    return Scenario(link, variants, _harm(HEALTHY, 0.97, 1.15), ways=_CPP_WAYS)


def _dead(flags):
    link = link_of_flags(flags, workers=64, machines=8)
    small = _paced(flags, range(link.workers))
    other = Group(OTHER, DeadAddresses.addresses(flags.dead), 200, interval_s=_DEAD_INTERVAL_S,
                  timeout_s=_DEAD_TIMEOUT_S, warm_up=False)  # fmt: skip
    # The same number of calls to workers that respond separates the cost of the calls from the cost of the fault.
    live = dataclasses.replace(other, workers=tuple(i % link.workers for i in range(flags.dead)))
    variants = (
        Variant(ALONE, (small,), budget_bytes=flags.budget),
        Variant(HEALTHY, (small, live), budget_bytes=flags.budget),
        Variant(BAD, (small, other), DeadAddresses(), flags.budget),
    )
    return Scenario(link, variants, (*_harm(ALONE, 0.95, 1.3), Bound("longest_gap_ms", at_most=50)))


def _rack(flags):
    link = link_of_flags(flags, workers=64, machines=8)
    machines = link.machine_count()
    lost = round(machines * (flags.rack or link.workers // 2) / link.workers)
    if not 0 < lost < machines:
        raise ValueError(
            f"--rack {flags.rack}: between 1 and {machines - 1} of the {machines} machines must lose their links"
        )
    in_rack = [worker for worker in range(link.workers) if worker % machines >= machines - lost]
    small = _paced(flags, sorted(set(range(link.workers)) - set(in_rack)))
    other = dataclasses.replace(small, name=OTHER, workers=tuple(in_rack), timeout_s=_DEAD_TIMEOUT_S)
    variants = _three(small, other, LostLinks(range(machines - lost, machines)), flags.budget)
    bounds = (*_harm(HEALTHY, 0.95, 1.3), Bound("longest_gap_ms", at_most=50))
    return Scenario(link, variants, bounds, seconds=_RACK_S)


def _next_to_large_responses(flags, fault, *bounds):
    """Returns a scenario in which one worker sends 1 MB repeatedly."""
    link = link_of_flags(flags, workers=16)
    variants = _three(busy(flags, range(1, link.workers)), Group(OTHER, (0,), MEGABYTE), fault, flags.budget)
    bounds = (*_harm(HEALTHY, 0.95, 1.3), Bound("total_goodput_over_healthy", at_least=0.95), *bounds)
    return Scenario(link, variants, bounds, ways=_CPP_WAYS)


def _pause(flags):
    # A pause loses no packet, so the budget must stay.
    fault = Pauses(0, flags.pause / 1e3, flags.pause_every)
    return _next_to_large_responses(flags, fault, Bound("budget_over_healthy", at_least=0.9))


def _lossy(flags):
    return _next_to_large_responses(flags, BadPath([0], flags.loss / 100, flags.reorder / 100))


def _slow_merge(flags):
    # The port must be faster than the application.
    link = link_of_flags(flags, workers=16, rate_bps=10**9, buffer_bytes=512 * 1024)
    small = busy(flags, range(1, link.workers))
    other = Group(OTHER, (0,), MEGABYTE, messages=1000, warm_up=False)  # a stream would prolong the warm-up
    slow = dataclasses.replace(other, merge_s=flags.merge / 1e3)
    variants = (
        Variant(ALONE, (small,), budget_bytes=flags.budget),
        Variant(HEALTHY, (small, other), budget_bytes=flags.budget),
        Variant(BAD, (small, slow), budget_bytes=flags.budget),
    )
    bounds = (*_harm(HEALTHY, 0.95, 1.3), Bound("resident_growth_mb_per_s", at_most=1))
    return Scenario(link, variants, bounds, ways=("library",))


def _scan(flags):
    link = link_of_flags(flags, workers=64, machines=8)
    small = dataclasses.replace(_paced(flags, range(_SMALL_CALLS)), response_bytes=flags.response or 1024)
    workers = tuple(call % link.workers for call in range(_SCAN_CALLS))
    other = Group(OTHER, workers, flags.large or MEGABYTE, warm_up=False)
    variants = (
        Variant(ALONE, (small,), budget_bytes=flags.budget),
        Variant(BAD, (small, other), budget_bytes=flags.budget),
    )
    bounds = (Bound(f"p99_over_{ALONE}", at_most=2), Bound("total_goodput_bps", at_least=0.9 * link.rate_bps))
    return Scenario(link, variants, bounds)


def _classes(flags):
    # Both groups always have more to receive than the link takes.
    link = link_of_flags(flags, workers=64, machines=8)
    small = Group(SMALL, tuple(range(32)), flags.response or 10240, readers=8, traffic_class=SMALL)
    other = Group(OTHER, tuple(range(32, 64)), flags.large or MEGABYTE // 8, readers=2, traffic_class=OTHER)
    one_class = tuple(dataclasses.replace(group, traffic_class="") for group in (small, other))
    variants = (
        Variant(HEALTHY, one_class, budget_bytes=flags.budget),
        Variant(BAD, (small, other), budget_bytes=flags.budget, classes=((SMALL, _CLASS_WEIGHT), (OTHER, 1))),
    )
    bounds = (
        Bound("goodput_over_other", at_least=0.95 * _CLASS_WEIGHT, at_most=1.05 * _CLASS_WEIGHT),
        Bound(f"total_goodput_over_{HEALTHY}", at_least=0.97),
    )
    return Scenario(link, variants, bounds, ways=("library",))


def _mixed_shares(flags):
    """Calls and tunnels that always have more to receive than the link takes."""
    link = link_of_flags(flags, workers=64, machines=8)
    calls, tunnels = _calls_and_tunnels(flags, link, readers=4)
    tunnels = dataclasses.replace(tunnels, name=OTHER)
    classes = ((SMALL, _CLASS_WEIGHT), (OTHER, 1))
    variants = (
        Variant(HEALTHY, (calls, tunnels), budget_bytes=flags.budget),
        Variant(BAD, (calls, tunnels), budget_bytes=flags.budget, classes=classes, tunnels_class=OTHER),
    )
    bounds = (
        Bound("goodput_over_other", at_least=0.9 * _CLASS_WEIGHT, at_most=1.1 * _CLASS_WEIGHT),
        Bound(f"total_goodput_over_{HEALTHY}", at_least=0.97),
    )
    return Scenario(link, variants, bounds, ways=("proxy",))


def _calls_and_tunnels(flags, link, readers=1, interval_s=0.0):
    """Returns a group of calls and one of tunnels, to different machines."""
    half = link.machine_count() // 2
    calls = [worker for worker in range(link.workers) if worker % link.machine_count() < half]
    tunnels = sorted(set(range(link.workers)) - set(calls))
    group = Group(SMALL, (), flags.response or 10240, readers=readers, interval_s=interval_s)
    return tuple(
        dataclasses.replace(group, workers=tuple(workers), tunnel=tunnel)
        for workers, tunnel in ((calls, False), (tunnels, True))
    )


def _mixed(small_is_tunnel):
    """Groups that need less than the link together: a group of each kind, and two of the same kind."""

    def scenario(flags):
        link = link_of_flags(flags, workers=64, machines=8)
        pair = _calls_and_tunnels(flags, link, interval_s=_MIXED_INTERVAL_S)
        small, other = reversed(pair) if small_is_tunnel else pair
        # Other than the interval of the first group, so that they meet in all ways.
        interval_s = 1.1 * small.interval_s
        same = dataclasses.replace(small, name=OTHER, interval_s=interval_s)
        other = dataclasses.replace(other, name=OTHER, interval_s=interval_s)
        variants = (
            Variant(ALONE, (small,), budget_bytes=flags.budget),
            Variant(HEALTHY, (small, same), budget_bytes=flags.budget),
            Variant(BAD, (small, other), budget_bytes=flags.budget),
        )
        return Scenario(link, variants, (Bound(f"p99_over_{HEALTHY}", at_most=1.5),), ways=("proxy",))

    return scenario


def _proxy_rto(flags):
    link = link_of_flags(flags, workers=32, machines=8)
    small = Group(SMALL, tuple(range(link.workers)), flags.response or 10240)
    # The budget is fixed, because an adaptive one would soon end the collapse.
    variants = (
        Variant(HEALTHY, (small,), budget_bytes=link.buffer_bytes, policy="grants"),
        Variant(BAD, (small,), budget_bytes=_OVERFLOW * link.buffer_bytes),
    )
    bound = Bound("inferred_over_kernel", at_least=0.8)
    return Scenario(link, variants, (bound,), default_policies=("unscheduled", "grants"))


SCENARIOS = {
    "slow-once": _slow_once,
    "slow-again": _slow_again,
    "dead": _dead,
    "rack": _rack,
    "pause": _pause,
    "lossy": _lossy,
    "slow-merge": _slow_merge,
    "scan": _scan,
    "classes": _classes,
    "mixed-shares": _mixed_shares,
    "mixed-calls": _mixed(small_is_tunnel=False),
    "mixed-tunnels": _mixed(small_is_tunnel=True),
    "proxy-rto": _proxy_rto,
}
