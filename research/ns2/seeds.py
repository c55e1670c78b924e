"""Runs with several seeds: how far the goodput of the figures depends on when each worker starts. Podlesny and Williamson ran each
setting five times, Chen et al. a hundred times."""

import functools

import lossless
import ns2
import papers
import understanding
from papers import Figure
from spread import spread

SEEDS = (1, 2, 3, 4, 5)


def _by_case(cases, seeds, **options):
    """The runs of each case, one for each seed."""
    runs = ns2.run_all([settings | {"seed": seed} for settings in cases for seed in seeds], **options)
    return [runs[i * len(seeds):(i + 1) * len(seeds)] for i in range(len(cases))]


def lossless_unscheduled(plan):
    """All workers at once: SRUs of 10 KB, a block of 1 MB over N workers and over buffers, and the block in other networks."""
    block = [*range(2, 19), 20, 25, 30, 40, 50, 60, 80, 100, 130]
    cases = [("fig6", {"workers": count, "sru": papers.FIXED_SRU}) for count in (5, 10, 11, 12, 15, 20, 30, 50, 100, 200, 300)]
    cases += [("fig7", {"workers": count}) for count in block]
    cases += [("fig8", {"workers": count, "buffer": kb * 1000})
              for count, sizes in ((25, range(80, 108, 4)), (100, (8, 12, 32, 72, 128))) for kb in sizes]
    for name, setting in (("windows of 20", {"max_window": 20}), ("overhead 1e-5", {"overhead": 1e-5}),
                          ("initial window 2", {"initial_window": 2})):
        cases += [(name, {"workers": count} | setting) for count in range(2, 19)]
    settings = []
    for _, case in cases:
        row = plan.lossless(case["workers"], sru=case.get("sru"), buffer=case.get("buffer", 32_000))
        settings.append({"buffer": int(row["buffer_bytes"])} | case | {"sru": int(row["sru_bytes"])})
    rows = []
    for (name, case), setting, runs in zip(cases, settings, _by_case(settings, SEEDS)):
        share = 1 if "sru" in case else papers.BLOCK / (case["workers"] * setting["sru"])
        rows.append({"curve": name, "workers": case["workers"], "buffer_bytes": setting["buffer"], "seeds": len(SEEDS),
                     **spread("mbps", [run.goodput * share for run in runs]),
                     "runs_with_timeouts": sum(1 for run in runs if run.timeouts)})
    return rows


def lossless_slots(plan):
    """The schedule."""
    cases = [("fig6", {"workers": count, "sru": papers.FIXED_SRU}) for count in (5, 10, 15, 16, 20, 50, 100, 200, 300)]
    cases += [("fig7", {"workers": count}) for count in (22, 25, 50, 100, 200, 499, 500)]
    cases += [("fig8", {"workers": count, "buffer": kb * 1000}) for count in (25, 100) for kb in (28, 64, 96, 128)]
    cases += [("fig9", {"workers": count, "timer": timer}) for count in (25, 50) for timer in ("1ms", "2ms", "3ms")]
    planned = [plan.lossless(**case) for _, case in cases]
    settings = [papers.slots(row) | {"workers": case["workers"], "buffer": int(row["buffer_bytes"])}
                for (_, case), row in zip(cases, planned)]
    rows = []
    for (name, case), row, setting, runs in zip(cases, planned, settings, _by_case(settings, SEEDS)):
        share = 1 if "sru" in case else papers.BLOCK / (case["workers"] * setting["sru"])
        rows.append({"curve": name, "workers": case["workers"], "buffer_bytes": setting["buffer"],
                     "timer_granularity_ms": row["timer_granularity_s"] * 1e3, "seeds": len(SEEDS),
                     "model_mbps": row["goodput_bps"] / 1e6, **spread("mbps", [run.goodput * share for run in runs]),
                     "drops": sum(run.drops for run in runs), "timeouts": sum(run.timeouts for run in runs)})
    return rows


def table3(_):
    """Table 3 of the storage paper, whose runs of 20 s are single ones."""
    seeds = range(1, 11)
    cases = {"Reno": {"tcp": "Reno"}, "NewReno": {}, "NewReno, 1 duplicate ACK": {"duplicate_acks": 1}}
    rows = []
    for name, case in cases.items():
        runs = ns2.run_all([papers.STORAGE | {"workers": 16, "seconds": 20, "seed": seed} | case for seed in seeds], count_acks=True)
        rows.append({"tcp": name, "seeds": len(seeds), **spread("blocks", [run.blocks for run in runs]),
                     **spread("timeouts", [run.timeouts for run in runs]),
                     **spread("no_duplicate_ack", [run.full_losses for run in runs])})
    return rows


def _waiting(run):
    return sum(1 for timeouts in run.block_timeouts if timeouts) / max(1, run.blocks)


def _full_loss_share(run):
    return run.full_losses / max(1, run.timeouts)


def understanding_collapse(_, hosts=0):
    """Figs 6 and 7 of "Comprehensive Understanding"; packets of half the size, which the paper takes for twice the buffer; and the
    kinds of timeouts of Fig 3, which are of the curve "64 KB". Each worker has a host, or three hosts share all, as in the paper."""
    curves = {f"{kb} KB": {"sru": kb * 1024} for kb in (32, 64, 128, 256, 512)}
    curves |= {f"{kb} KB of buffer": {"buffer": kb * 1024} for kb in (64, 256, 512)}
    curves["packets of 750 bytes"] = {"payload": 710}
    workers = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64)
    cases = [(name, count) for name in curves for count in workers]
    settings = [papers.UNDERSTANDING | {"workers": count, "seconds": understanding.SECONDS, "hosts": hosts} | curves[name]
                for name, count in cases]
    return [{"curve": name, "workers": count, "seeds": len(SEEDS), **spread("mbps", [run.goodput for run in runs]),
             **spread("blocks_with_timeouts", [_waiting(run) for run in runs]),
             **spread("full_loss_share", [_full_loss_share(run) for run in runs])}
            for (name, count), runs in zip(cases, _by_case(settings, SEEDS, count_acks=True))]


FIGURES = {"lossless_slots_seeds": Figure(lossless_slots), "lossless_unscheduled_seeds": Figure(lossless_unscheduled),
           "storage_table3_seeds": Figure(table3), "understanding_seeds": Figure(understanding_collapse),
           "understanding_hosts_seeds": Figure(functools.partial(understanding_collapse, hosts=3))}
