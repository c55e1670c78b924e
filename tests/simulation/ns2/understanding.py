"""The figures of "Comprehensive Understanding of TCP Incast Problem": its model by sluice-plan, with the windows that ns-2 shows,
beside ns-2 itself."""

import statistics

import ns2
import papers
from plan_plot import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, pyplot, save

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE)
_MARKERS = "os^Dv"
SECONDS = 5
_WORKERS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64)
# Connections grow into their windows within the first blocks.
_WARM_UP_BLOCKS = 3


def _window(run):
    """The mean of the windows as blocks begin, and the mean of their standard deviations."""
    samples = run.windows[_WARM_UP_BLOCKS:] or run.windows[-1:]
    return (statistics.mean(w for sample in samples for w in sample),
            statistics.mean(statistics.pstdev(sample) for sample in samples))


def model(plan, run, workers, buffer=131_072, sru=65_536, rto_min="200ms"):
    """The model with the windows of a run."""
    window, deviation = _window(run)
    return plan.row(*papers.UNDERSTANDING_PLAN, "--workers", workers, "--buffer", buffer, "--sru", sru, "--rto_min", rto_min,
                    "--window", window, "--window_deviation", deviation)


def _curves(name, plan, folder, curves, unit, workers=_WORKERS, of_model=lambda settings: {}):
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
    papers.write_csv(folder / f"{name}.csv", rows)
    draw_curves(rows, unit, folder / f"{name}.svg")


def draw_curves(rows, unit, path):
    plot = pyplot()
    figure, (simulated, modelled, waiting) = plot.subplots(3, 1, sharex=True, figsize=(7.5, 8.4))
    for label, colour, marker in zip(dict.fromkeys(row["curve"] for row in rows), _COLOURS, _MARKERS):
        own = [row for row in rows if row["curve"] == label]
        workers = [row["workers"] for row in own]
        simulated.plot(workers, [row["simulated_mbps"] for row in own], color=colour, marker=marker, label=label)
        modelled.plot(workers, [row["model_mbps"] for row in own], color=colour, marker=marker)
        waiting.plot(workers, [row["block_timeout_probability"] for row in own], color=colour)
        waiting.plot(workers, [row["simulated_block_timeouts"] for row in own], marker, color=colour)
    for axes, title in ((simulated, "ns-2"), (modelled, "model, with the windows of ns-2")):
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel("goodput, Mbit/s")
        axes.set_ylim(bottom=0)
    waiting.set_title("points: ns-2; lines: model", loc="left", fontsize=10)
    waiting.set_ylabel("share of the blocks that\nwait for a timeout")
    waiting.set_xlabel("workers N")
    simulated.legend(title=unit, loc="center left", bbox_to_anchor=(1.01, 0.5))
    save(figure, path)


def figure3(plan, folder):
    """Timeouts by their kind, over N; and the model's share of full losses among those."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7.5, 4.2))
    workers = (*_WORKERS, 96, 128)
    runs = ns2.run_all([papers.UNDERSTANDING | {"workers": count, "seconds": SECONDS} for count in workers], count_acks=True,
                       record_windows=True)
    rows = []
    for count, run in zip(workers, runs):
        row = model(plan, run, count)
        full, lack = row["collapse_full_loss_probability"], row["collapse_lack_of_acks_probability"]
        rows.append({"workers": count, "blocks": run.blocks, "full_loss": run.full_losses, "lack_of_acks": run.lacks_of_acks,
                     "lost_again": run.timeouts - run.full_losses - run.lacks_of_acks,
                     "window": row["collapse_window"], "model_full_loss_share": full / (full + lack) if full else 0.0})
    names = {"full_loss": ("no ACK: full window (FLT)", VERMILION), "lack_of_acks": ("1 or 2 duplicate ACKs (LAT)", BLUE),
             "lost_again": ("3 or more: lost again", ORANGE)}
    bottom = [0] * len(rows)
    for key, (label, colour) in names.items():
        axes.bar([str(row["workers"]) for row in rows], [row[key] for row in rows], bottom=bottom, color=colour, label=label)
        bottom = [below + row[key] for below, row in zip(bottom, rows)]
    axes.set_xlabel("workers N")
    axes.set_ylabel(f"timeouts in {SECONDS} s")
    axes.legend(loc="upper left")
    papers.write_csv(folder / "understanding_fig3.csv", rows)
    save(figure, folder / "understanding_fig3.svg")


def figure5(_, folder):
    """Windows of 15 and 30 workers as blocks begin, and Table II: are they normal at one time? (Kolmogorov and Smirnov)"""
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
    papers.write_csv(folder / "understanding_table2.csv", rows)
    plot = pyplot()
    figure, axes_of = plot.subplots(1, 2, figsize=(8, 3.4))
    for axes, count in zip(axes_of, (15, 30)):
        run = runs[count - workers[0]]
        windows = [w for sample in run.windows[_WARM_UP_BLOCKS:] for w in sample]
        axes.hist(windows, bins=40, density=True, color=BLUE)
        window, deviation = statistics.mean(windows), statistics.pstdev(windows)
        x = [min(windows) + i * (max(windows) - min(windows)) / 200 for i in range(201)]
        axes.plot(x, scipy.stats.norm.pdf(x, window, deviation), color=BLACK)
        axes.set_title(f"N = {count}: {window:.1f} ± {deviation:.1f} packets", loc="left", fontsize=10)
        axes.set_xlabel("window, packets")
    axes_of[0].set_ylabel("density")
    save(figure, folder / "understanding_fig5.svg")


def figure6(plan, folder):
    """Block sizes."""
    _curves("understanding_fig6", plan, folder, {f"{kb} KB": {"sru": kb * 1024} for kb in (32, 64, 128, 256, 512)}, "from each",
            of_model=lambda settings: {"sru": settings["sru"]})


def figure7(plan, folder):
    """Buffers."""
    _curves("understanding_fig7", plan, folder, {f"{kb} KB": {"buffer": kb * 1024} for kb in (64, 128, 256, 512)}, "buffer",
            workers=(*_WORKERS, 80, 96), of_model=lambda settings: {"buffer": settings["buffer"]})


def figure8(plan, folder):
    """Minimum retransmission timeouts."""
    _curves("understanding_fig8", plan, folder, {f"{ms} ms": {"rto_min": ms / 1000} for ms in (50, 100, 200)}, "RTO_min",
            of_model=lambda settings: {"rto_min": f"{settings['rto_min'] * 1000:g}ms"})


def figure9(plan, folder):
    """NewReno and Vegas: goodput, and the windows of their connections."""
    network = papers.UNDERSTANDING | {"payload": 1000, "buffer": 65_536, "sru": 102_400, "seconds": SECONDS}
    workers = (2, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60)
    plot = pyplot()
    figure, (goodput, windows) = plot.subplots(2, 1, sharex=True, figsize=(7.5, 6))
    rows = []
    for (label, tcp), colour, marker in zip((("NewReno", "Newreno"), ("Vegas", "Vegas")), _COLOURS, _MARKERS):
        runs = ns2.run_all([network | {"workers": count, "tcp": tcp} for count in workers], record_windows=True)
        goodput.plot(workers, [run.goodput for run in runs], color=colour, marker=marker, label=label)
        of_runs = [_window(run) for run in runs]
        windows.errorbar(workers, [window for window, _ in of_runs], yerr=[deviation for _, deviation in of_runs], color=colour,
                         marker=marker, capsize=3)
        for count, run, (window, deviation) in zip(workers, runs, of_runs):
            row = plan.row("--capacity", "1gbit", "--rtt", "100us", "--buffer", 65_536, "--packet_payload", 1000, "--frame", 1040,
                           "--ack", 40, "--sru", 102_400, "--workers", count, "--window", window, "--window_deviation", deviation)
            rows.append({"tcp": label, "workers": count, "simulated_mbps": run.goodput, "timeouts": run.timeouts,
                         "window": window, "window_deviation": deviation, "model_mbps": row["collapse_goodput_bps"] / 1e6,
                         "block_timeout_probability": row["collapse_block_timeout_probability"]})
    goodput.set_ylabel("goodput, Mbit/s")
    goodput.set_ylim(bottom=0)
    goodput.legend()
    windows.set_ylabel("window, packets:\nmean and deviation")
    windows.set_xlabel("workers N")
    papers.write_csv(folder / "understanding_fig9.csv", rows)
    save(figure, folder / "understanding_fig9.svg")


FIGURES = {"understanding_fig3": figure3, "understanding_fig5": figure5, "understanding_fig6": figure6,
           "understanding_fig7": figure7, "understanding_fig8": figure8, "understanding_fig9": figure9}
