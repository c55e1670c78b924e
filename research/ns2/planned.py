"""Random reads without a schedule, to check the goodput that sluice-plan prints for them. The seed was chosen before the runs."""

import random

import ns2
import papers
from papers import Figure

_SEED = 20261130
_FITTING, _EXCEEDING = 24, 16


def read(rng):
    """Draws a read: settings of incast.tcl, and the link."""
    return {"rate_mbit": rng.choice((100, 400, 1000, 2500)), "buffer_bytes": 1024 * rng.choice((32, 64, 128, 256, 512)),
            "rtt_us": rng.choice((50, 100, 200, 500, 1000)), "workers": round(2 ** rng.uniform(0, 7)),
            "sru_bytes": round(2 ** rng.uniform(10, 19))}


def planned(plan, one):
    workers = one["workers"]
    return plan.row("--capacity", f"{one['rate_mbit']}mbit", "--buffer", one["buffer_bytes"], "--rtt", f"{one['rtt_us']}us",
                    "--packet_payload", 1460, "--frame", 1500, "--ack", 40, "--sru", one["sru_bytes"], "--sweep",
                    f"workers={workers}:{workers}")


def unscheduled(plan):
    """Persistent connections, 50 blocks one after the other: reads that fit the buffer, and reads that do not."""
    rng = random.Random(_SEED)
    reads = {True: [], False: []}
    while len(reads[True]) < _FITTING or len(reads[False]) < _EXCEEDING:
        one = read(rng)
        fits = one["workers"] * -(-one["sru_bytes"] // 1460) * 1500 <= one["buffer_bytes"]
        if len(reads[fits]) < (_FITTING if fits else _EXCEEDING):
            reads[fits].append(one)
    reads = reads[True] + reads[False]
    runs = ns2.run_all([papers.UNDERSTANDING | {
        "sru": one["sru_bytes"], "buffer": one["buffer_bytes"], "workers": one["workers"], "rate": f"{one['rate_mbit']}Mb",
        "delay": one["rtt_us"] * 1e-6 / 4, "overhead": 1e-2 / one["rate_mbit"], "initial_window": 10, "blocks": 50,
        "seconds": 30} for one in reads])
    return [one | {"simulated_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts, "drops": run.drops,
                   "collapse_model_mbps": planned(plan, one)["collapse_goodput_bps"] / 1e6}
            for one, run in zip(reads, runs)]


FIGURES = {"plan_unscheduled": Figure(unscheduled)}
