"""The figures of "Comprehensive Understanding of TCP Incast Problem": its model by sluice-plan with the windows from
ns-2, and the results of ns-2."""

import functools
import statistics

import ns2
import papers
from papers import Figure, by_curve, column
from picture import BLUE, INK, ORANGE, VERMILION, pyplot

SECONDS = 5
_WORKERS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64)
# Connections reach their windows within the first blocks.
_WARM_UP_BLOCKS = 3


def _window(run):
    """Returns the mean of the windows at the start of blocks, and the mean of their standard deviations."""
    samples = run.windows[_WARM_UP_BLOCKS:] or run.windows[-1:]
    return (statistics.mean(w for sample in samples for w in sample),
            statistics.mean(statistics.pstdev(sample) for sample in samples))


def model(plan, run, workers, buffer=131_072, sru=65_536, rto_min="200ms"):
    """Returns the model with the windows of a run."""
    window, deviation = _window(run)
    return plan.row(*papers.UNDERSTANDING_PLAN, "--workers", workers, "--buffer", buffer, "--sru", sru, "--rto_min", rto_min,
                    "--window", window, "--window_deviation", deviation)


def _curves(plan, curves, workers=_WORKERS, of_model=lambda settings: {}):
    rows = []
    for label, settings in curves.items():
        runs = ns2.run_all([papers.UNDERSTANDING | {"workers": count, "seconds": SECONDS} | settings for count in workers],
                           record_windows=True)
        for count, run in zip(workers, runs):
            row = model(plan, run, count, **of_model(settings))
            rows.append({
                "curve": label, "workers": count, "simulated_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts,
                "window": row["collapse_window"], "window_deviation": _window(run)[1],
                "loss_probability": row["collapse_loss_probability"], "full_loss_probability": row["collapse_full_loss_probability"],
                "full_loss_bound": row["collapse_full_loss_bound"], "timeout_probability": row["collapse_timeout_probability"],
                "block_timeout_probability": row["collapse_block_timeout_probability"],
                "model_mbps": row["collapse_goodput_bps"] / 1e6, "printed_model_mbps": row["collapse_printed_goodput_bps"] / 1e6,
                "simulated_block_timeouts": sum(1 for timeouts in run.block_timeouts if timeouts) / max(1, run.blocks),
            })
    return rows


def draw_curves(_, rows, unit):
    figure, (simulated, modelled, waiting) = pyplot().subplots(3, 1, sharex=True, figsize=(7.5, 8.4))
    for label, own, colour, marker in by_curve(rows):
        workers = column(own, "workers")
        simulated.plot(workers, column(own, "simulated_mbps"), color=colour, marker=marker, label=label)
        modelled.plot(workers, column(own, "model_mbps"), color=colour, marker=marker)
        waiting.plot(workers, column(own, "block_timeout_probability"), color=colour)
        waiting.plot(workers, column(own, "simulated_block_timeouts"), marker, color=colour)
    for axes, title in ((simulated, "ns-2"), (modelled, "model, with the windows of ns-2")):
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel("goodput, Mbit/s")
        axes.set_ylim(bottom=0)
    waiting.set_title("points: ns-2; lines: model", loc="left", fontsize=10)
    waiting.set_ylabel("share of the blocks that\nwait for a timeout")
    waiting.set_xlabel("workers N")
    simulated.legend(title=unit, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def figure3(plan):
    """Timeouts by kind over N, and the model's share of full losses among them."""
    workers = (*_WORKERS, 96, 128)
    runs = ns2.run_all([papers.UNDERSTANDING | {"workers": count, "seconds": SECONDS} for count in workers], count_acks=True,
                       record_windows=True)
    rows = []
    for count, run in zip(workers, runs):
        row = model(plan, run, count)
        full, lack = row["collapse_full_loss_probability"], row["collapse_lack_of_acks_probability"]
        rows.append({"workers": count, "blocks": run.blocks, "full_loss": run.full_losses, "lack_of_acks": run.lacks_of_acks,
                     "three_or_more": run.timeouts - run.full_losses - run.lacks_of_acks,
                     "window": row["collapse_window"], "model_full_loss_share": full / (full + lack) if full else 0.0})
    return rows


def draw_figure3(_, rows):
    figure, axes = pyplot().subplots(figsize=(7.5, 4.2))
    names = {"full_loss": ("no duplicate ACK (FLT)", VERMILION), "lack_of_acks": ("1 or 2 duplicate ACKs (LAT)", BLUE),
             "three_or_more": ("3 or more duplicate ACKs", ORANGE)}
    bottom = [0] * len(rows)
    for key, (label, colour) in names.items():
        axes.bar([f"{row['workers']:g}" for row in rows], [row[key] for row in rows], bottom=bottom, color=colour, label=label)
        bottom = [below + row[key] for below, row in zip(bottom, rows)]
    axes.set_xlabel("workers N")
    axes.set_ylabel(f"timeouts in {SECONDS} s")
    axes.legend(loc="upper left")
    return figure


def _settled_windows(run):
    return [w for sample in run.windows[_WARM_UP_BLOCKS:] for w in sample]


def table2(_):
    """Tests whether the windows at the start of blocks are normally distributed at each time (Kolmogorov-Smirnov)."""
    import scipy.stats
    workers = range(15, 31)
    runs = ns2.run_all([papers.UNDERSTANDING | {"workers": count, "seconds": 20} for count in workers], record_windows=True)
    rows = []
    for count, run in zip(workers, runs):
        significances = []
        for sample in run.windows[_WARM_UP_BLOCKS:]:
            if statistics.pstdev(sample) > 0:
                mean, deviation = statistics.mean(sample), statistics.stdev(sample)
                significances.append(scipy.stats.kstest(sample, "norm", (mean, deviation), mode="asymp").pvalue)
        window, deviation = _window(run)
        rows.append({"workers": count, "blocks": len(significances), "window": window, "window_deviation": deviation,
                     "median_significance": statistics.median(significances),
                     "share_above_0.05": sum(1 for value in significances if value > 0.05) / len(significances)})
    return rows


def figure5(_):
    """Windows of 15 and 30 workers at the start of blocks, in bins."""
    bins = 40
    workers = (15, 30)
    rows = []
    for count, run in zip(workers, ns2.run_all([papers.UNDERSTANDING | {"workers": count, "seconds": 20} for count in workers],
                                               record_windows=True)):
        windows = _settled_windows(run)
        least, width = min(windows), (max(windows) - min(windows)) / bins
        counts = [0] * bins
        for window in windows:
            counts[min(bins - 1, int((window - least) / width))] += 1
        rows += [{"workers": count, "window": least + i * width, "width": width, "density": number / len(windows) / width,
                  "mean": statistics.mean(windows), "deviation": statistics.pstdev(windows)} for i, number in enumerate(counts)]
    return rows


def draw_figure5(_, rows):
    figure, axes_of = pyplot().subplots(1, 2, figsize=(8, 3.4))
    for axes, (workers, own, *_) in zip(axes_of, by_curve(rows, "workers")):
        axes.bar(column(own, "window"), column(own, "density"), width=column(own, "width"), align="edge", color=BLUE)
        mean, deviation = own[0]["mean"], own[0]["deviation"]
        least, most = own[0]["window"], own[-1]["window"] + own[-1]["width"]
        x = [least + i * (most - least) / 200 for i in range(201)]
        axes.plot(x, [statistics.NormalDist(mean, deviation).pdf(value) for value in x], color=INK)
        axes.set_title(f"N = {workers:g}: {mean:.1f} ± {deviation:.1f} packets", loc="left", fontsize=10)
        axes.set_xlabel("window, packets")
    axes_of[0].set_ylabel("density")
    return figure


def figure6(plan):
    """Block sizes."""
    return _curves(plan, {f"{kb} KB": {"sru": kb * 1024} for kb in (32, 64, 128, 256, 512)},
                   of_model=lambda settings: {"sru": settings["sru"]})


def figure7(plan):
    """Buffers."""
    return _curves(plan, {f"{kb} KB": {"buffer": kb * 1024} for kb in (64, 128, 256, 512)},
                   workers=(*_WORKERS, 80, 96), of_model=lambda settings: {"buffer": settings["buffer"]})


def figure8(plan):
    """Minimum retransmission timeouts."""
    return _curves(plan, {f"{ms} ms": {"rto_min": ms / 1000} for ms in (50, 100, 200)},
                   of_model=lambda settings: {"rto_min": f"{settings['rto_min'] * 1000:g}ms"})


def figure9(plan):
    """NewReno and Vegas: goodput, and the windows of the connections."""
    network = papers.UNDERSTANDING | {"payload": 1000, "buffer": 65_536, "sru": 102_400, "seconds": SECONDS}
    workers = (2, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60)
    rows = []
    for label, tcp in (("NewReno", "Newreno"), ("Vegas", "Vegas")):
        runs = ns2.run_all([network | {"workers": count, "tcp": tcp} for count in workers], record_windows=True)
        for count, run in zip(workers, runs):
            window, deviation = _window(run)
            row = plan.row("--capacity", "1gbit", "--rtt", "100us", "--buffer", 65_536, "--packet_payload", 1000, "--frame", 1040,
                           "--ack", 40, "--sru", 102_400, "--workers", count, "--window", window, "--window_deviation", deviation)
            rows.append({"tcp": label, "workers": count, "simulated_mbps": run.goodput, "timeouts": run.timeouts,
                         "window": window, "window_deviation": deviation, "model_mbps": row["collapse_goodput_bps"] / 1e6,
                         "block_timeout_probability": row["collapse_block_timeout_probability"]})
    return rows


def draw_figure9(_, rows):
    figure, (goodput, windows) = pyplot().subplots(2, 1, sharex=True, figsize=(7.5, 6))
    for label, own, colour, marker in by_curve(rows, "tcp"):
        workers = column(own, "workers")
        goodput.plot(workers, column(own, "simulated_mbps"), color=colour, marker=marker, label=label)
        windows.errorbar(workers, column(own, "window"), yerr=column(own, "window_deviation"), color=colour, marker=marker,
                         capsize=3)
    goodput.set_ylabel("goodput, Mbit/s")
    goodput.set_ylim(bottom=0)
    goodput.legend()
    windows.set_ylabel("window, packets:\nmean and deviation")
    windows.set_xlabel("workers N")
    return figure


FIGURES = {"understanding_fig3": Figure(figure3, draw_figure3), "understanding_table2": Figure(table2),
           "understanding_fig5": Figure(figure5, draw_figure5),
           "understanding_fig6": Figure(figure6, functools.partial(draw_curves, unit="from each")),
           "understanding_fig7": Figure(figure7, functools.partial(draw_curves, unit="buffer")),
           "understanding_fig8": Figure(figure8, functools.partial(draw_curves, unit="RTO_min")),
           "understanding_fig9": Figure(figure9, draw_figure9)}
