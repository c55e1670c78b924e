"""The neighbours in the port by name, and the fan-outs that run beside each."""

import dataclasses
import functools
import pathlib

from answer_measurement import built, server_command
from bad_worker_faults import Fault
from bad_worker_scenarios import OTHER, WAYS, Group, Scenario, Variant, busy, link_of_flags
from port_neighbours import OtherLoad, Overtaken, Traffic
from sluice_programs import link_config

_CONTROLS = ("cubic", "reno", "bbr")
_BULK_FLOWS = (1, 4)
_UDP_PERCENT = (5, 20, 50)
_OVERTAKEN_PERCENT = (0.1, 1, 3)
_BURST_BYTES, _BURST_S = 100_000, 0.1
ON_OFF_S = 5


def _bulk(flows, control, flags, _link):
    return Traffic(flags.seconds, "bulk", flows, congestion_control=control)


def _on_off(flags, _link):
    return Traffic(flags.seconds, "on-off", ON_OFF_S)


def _bursts(flags, _link):
    return Traffic(flags.seconds, "bursts", _BURST_BYTES, _BURST_S)


def _udp(percent, flags, link):
    return Traffic(flags.seconds, "udp", link.rate_bps * percent // 100)


def _other_load(stock_client, flags, link):
    config = {
        "stock_client": stock_client,
        "link": link_config(link),
        "schedule": {},
        "warm_up_s": flags.warm_up,
        "seconds": flags.seconds,
    }
    group = Group(OTHER, tuple(range(link.workers)), flags.response, readers=flags.readers)
    return OtherLoad(built(flags.build[0], "tests/group_load"), server_command(flags.build[0], "cpp"), group, config)


_MAKERS = {
    "none": lambda *_: Fault(),
    **{
        f"{control}-{flows}": functools.partial(_bulk, flows, control) for control in _CONTROLS for flows in _BULK_FLOWS
    },
    "on-off": _on_off,
    **{f"udp-{percent}": functools.partial(_udp, percent) for percent in _UDP_PERCENT},
    "bursts": _bursts,
    "sluice": functools.partial(_other_load, False),
    "grpc": functools.partial(_other_load, True),
    **{f"overtaken-{percent:g}": lambda *_, share=percent / 100: Overtaken(share) for percent in _OVERTAKEN_PERCENT},
}  # fmt: skip
NEIGHBOURS = tuple(_MAKERS)


def usual_neighbours():
    """Returns all neighbours except the bulk flows whose congestion control the kernel lacks."""
    available = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    lacking = tuple(f"{control}-" for control in _CONTROLS if control not in available)
    return [name for name in NEIGHBOURS if not name.startswith(lacking)]


def scenario(flags):
    """Returns a scenario of which each neighbour is a variant."""
    link = link_of_flags(flags, workers=flags.workers)
    group = dataclasses.replace(busy(flags, range(link.workers)), readers=flags.readers)
    variants = tuple(
        Variant(name, (group,), _MAKERS[name](flags, link), budget_bytes=flags.budget) for name in flags.neighbour
    )
    return Scenario(link, variants, bounds=(), ways=WAYS)
