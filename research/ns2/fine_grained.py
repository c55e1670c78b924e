"""The simulations of "Safe and Effective Fine-grained TCP Retransmissions for Datacenter Communication" in ns-2: a
minimum RTO of microseconds, delayed ACKs, and timeouts at random times. A block has a fixed size, and each server
sends its share."""

import functools

import ns2
import papers
from papers import Figure, draw_goodput

RTO_MIN = {"200 ms": 0.2, "10 ms": 0.01, "5 ms": 0.005, "1 ms": 0.001, "200 µs": 0.0002}


def share(workers, block):
    """Returns a share with an even number of packets, so that a client with delayed ACKs has none to delay at the
    end of a response."""
    return 2000 * max(1, round(block / 2000 / workers))


def network(workers, rto_min, **settings):
    """1 Gbit/s, 32 KB, 0.1 ms, a block of 1 MB."""
    return papers.STORAGE | {"buffer_packets": 0, "buffer": 32_768, "workers": workers, "sru": share(workers, 1_000_000),
                             "rto_min": rto_min, "tick": min(0.01, rto_min / 20), "blocks": 20, "seconds": 4} | settings


def random_network(workers, random_rto):
    """10 Gbit/s, 32 KB, 20 µs, one block of 10 MB. initial_rto is short: the usual first timeout of 3 s would hide the others."""
    return papers.STORAGE | {"buffer_packets": 0, "buffer": 32_768, "workers": workers, "sru": share(workers, 10_000_000),
                             "rate": "10000Mb", "delay": "0.005ms", "jitter": 2e-6, "rto_min": 0.0002, "tick": 1e-6,
                             "random_rto": random_rto, "initial_rto": 0.002, "blocks": 1, "seconds": 0.1}


def wide_network(rto_min, overhead):
    """Ten flows of 4 MB over a path of 10 Mbit/s and 20 ms with room for 100 packets, to hosts that need some time
    for each packet."""
    return papers.STORAGE | {"workers": 10, "sru": 4_000_000, "rate": "10Mb", "delay": "5ms", "buffer_packets": 100, "max_window": 64,
                             "rto_min": rto_min, "tick": min(0.01, rto_min / 20), "overhead": overhead, "jitter": 1, "blocks": 1,
                             "seconds": 120}


def _run(labelled):
    """Returns a row for each run of (curve, settings, columns that distinguish the runs of a curve)."""
    labelled = list(labelled)
    rows = []
    for (label, _, axis), run in zip(labelled, ns2.run_all([settings for _, settings, _ in labelled])):
        rows.append({"curve": label, **axis, "goodput_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts,
                     "drops": run.drops, "sent": run.sent})
    return rows


def servers(_):
    """Up to 47 servers, as in the cluster that the papers measured."""
    return _run((name, network(workers, rto_min), {"workers": workers})
                for name, rto_min in RTO_MIN.items() for workers in (1, 2, 4, 6, 8, 12, 16, 24, 32, 47))


def rto_min_sweep(_):
    """Over the minimum RTO, for some numbers of servers."""
    return _run((f"N = {workers}", network(workers, ms / 1e3), {"rto_min_ms": ms})
                for workers in (4, 8, 16, 32) for ms in (0.2, 1, 5, 10, 50, 200))


def figure14(_):
    """Clients that delay their ACKs, with a minimum RTO of 200 µs."""
    return _run((name, network(workers, 0.0002, delayed_ack=delay), {"workers": workers})
                for name, delay in (("no delayed ACK", 0), ("200 µs", 0.0002), ("40 ms", 0.04))
                for workers in (1, 2, 3, 4, 6, 8, 10, 12, 14, 16))


def random_rto(_):
    """Timeouts at random times, for many servers."""
    return _run((name, random_network(workers, random), {"workers": workers})
                for name, random in (("RTO", 0), ("RTO × (1 + U(0, 0.5))", 0.5))
                for workers in (64, 128, 256))


def wide_area(_):
    """The effect of a minimum RTO below the round trip if round trips are long and vary."""
    return _run((f"hosts take up to {ms:g} ms", wide_network(rto_min, ms / 1e3), {"rto_min_ms": 1e3 * rto_min})
                for ms in (0.01, 5, 20, 50) for rto_min in (0.2, 0.01, 0.001, 0.0002))


FIGURES = {"fine_grained_servers": Figure(servers, functools.partial(draw_goodput, label="servers N", title="RTO_min")),
           "fine_grained_rto_min": Figure(rto_min_sweep, functools.partial(draw_goodput, x="rto_min_ms", label="RTO_min, ms",
                                                                          base=10)),
           "fine_grained_fig14": Figure(figure14, functools.partial(draw_goodput, label="servers N", title="delayed ACK")),
           "fine_grained_random": Figure(random_rto),
           "fine_grained_wide_area": Figure(wide_area)}
