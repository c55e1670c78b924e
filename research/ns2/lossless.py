"""The figures of "Solving the TCP-incast Problem with Application-Level Scheduling": its schedule by sluice-plan and
in ns-2, and the same reads without a schedule."""

import functools
import pathlib
import tempfile

import ns2
import papers
from papers import Figure, by_curve, column
from picture import BLUE, GRID, INK, ORANGE, VERMILION, pyplot


def table2(_):
    """The growth of one worker's window with an SRU of 9 packets, ACK by ACK."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = pathlib.Path(scratch, "trace")
        ns2.run(workers=1, sru=9000, jitter=0, trace=trace, variables="cwnd_ ack_ t_seqno_")
        lines = [line.split() for line in trace.read_text().splitlines()]
    state = {"cwnd_": 1.0, "ack_": -1.0, "t_seqno_": 0.0}
    rows = []
    # t_seqno_ is the next packet and ack_ the last acknowledged one; packet 0 is the SYN.
    for time in dict.fromkeys(line[0] for line in lines):
        state |= {line[5]: float(line[6]) for line in lines if line[0] == time}
        in_flight = state["t_seqno_"] - max(state["ack_"], 0) - 1
        if state["t_seqno_"] > 1:
            rows.append({"time_ms": float(time) * 1e3, "cwnd": int(state["cwnd_"]), "wnd": int(in_flight),
                         "r": int(10 - state["t_seqno_"])})
    return rows


def figure2(plan):
    """The schedule of 12 workers with 10 KB each: the time of each response."""
    row = plan.lossless(12, sru=papers.FIXED_SRU)
    starts = [row["slot_s"] * 1e3 * (i % int(row["batches"])) for i in range(12)]
    return [{"worker": i + 1, "start_ms": start, "end_ms": start + row["sru_time_s"] * 1e3} for i, start in enumerate(starts)]


def draw_figure2(plan, rows):
    row = plan.lossless(12, sru=papers.FIXED_SRU)
    slot, batches = row["slot_s"] * 1e3, int(row["batches"])
    figure, axes = pyplot().subplots(figsize=(7, 3.2))
    for batch in range(batches + 1):
        axes.axvline(batch * slot, color=GRID, linestyle=":", linewidth=1)
    axes.barh(column(rows, "worker"), [row["end_ms"] - row["start_ms"] for row in rows], left=column(rows, "start_ms"), height=0.7,
              color=BLUE)
    axes.set_xlabel("time, ms")
    axes.set_ylabel("worker i")
    axes.invert_yaxis()
    axes.set_title(f"n = {row['n']:.0f}, k = {batches} batches, slots of {slot:g} ms", loc="left", fontsize=10)
    return figure


def simulate(plan, cases, unscheduled=True, seeds=(1,)):
    """Returns the results of the model and of ns-2 for each case, with the slots and with all workers at once. A
    case has the arguments of Plan.lossless. The results are means over the seeds, and each seed has its own jitter."""
    planned = [plan.lossless(**case) for case in cases]
    results = []
    for case, row in zip(cases, planned):
        read = {"workers": case["workers"], "sru": int(row["sru_bytes"]), "buffer": int(row["buffer_bytes"])}
        # The last SRU of a block may be shorter, but ns-2 sends whole packets.
        share = 1 if case.get("sru") else papers.BLOCK / (read["workers"] * read["sru"])
        results.append((case, row, share, read))
    settings, owners = [], []
    for index, (_, row, _, read) in enumerate(results):
        for seed in seeds:
            if row["n"]:
                settings.append(read | papers.slots(row) | {"seed": seed})
                owners.append((index, "scheduled"))
            if unscheduled:
                settings.append(read | {"seed": seed})
                owners.append((index, "unscheduled"))
    runs = {}
    for owner, run in zip(owners, ns2.run_all(settings)):
        runs.setdefault(owner, []).append(run)
    rows = []
    for index, (case, row, share, _) in enumerate(results):
        out = {"workers": case["workers"], "buffer_bytes": int(row["buffer_bytes"]),
               "timer_granularity_ms": row["timer_granularity_s"] * 1e3, "wnd_max": int(row["wnd_max"]), "n": int(row["n"]),
               "model_mbps": row["goodput_bps"] / 1e6 if row["n"] else ""}
        for kind in ("scheduled", "unscheduled") if unscheduled else ("scheduled",):
            seen = runs.get((index, kind), [])
            mean = lambda values: sum(values) / len(seen) if seen else ""  # noqa: E731
            out |= {f"{kind}_mbps": mean([run.goodput * share for run in seen]), f"{kind}_drops": mean([run.drops for run in seen]),
                    f"{kind}_timeouts": mean([run.timeouts for run in seen])}
        if unscheduled:
            out |= {"unscheduled_model_mbps": row["collapse_goodput_bps"] / 1e6,
                    "unscheduled_printed_model_mbps": row["collapse_printed_goodput_bps"] / 1e6}
        rows.append(out)
    return rows


def goodput_over_workers(plan, small, large, sru=None):
    size = {"sru": sru} if sru else {}
    return simulate(plan, [{"workers": workers} | size for workers in [*small, *large]])


def draw_goodput_over_workers(plan, rows, small, large, sru=None):
    last = 1000
    flags = ("--sru", sru) if sru else ("--block", papers.BLOCK)
    model = [row for row in plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_BUFFER, *papers.LOSSLESS_TIMER, "--workers", last,
                                      *flags) if row["n"]]
    figure, (few, many, all_at_once) = pyplot().subplots(3, 1, figsize=(7.5, 9))
    for axes, workers, until in ((few, small, max(small)), (many, large, last)):
        shown = [row for row in rows if row["workers"] in workers and row["n"]]
        drawn = [row for row in model if min(row["workers"] for row in shown) <= row["workers"] <= until]
        axes.plot(column(drawn, "workers"), column(drawn, "goodput_bps", 1e-6), color=BLUE, linewidth=1, label="model")
        axes.plot(column(shown, "workers"), column(shown, "scheduled_mbps"), "o", color=ORANGE, markersize=3.5,
                  label="ns-2, 0 drops" if not any(column(shown, "scheduled_drops")) else "ns-2")
        axes.set_ylabel("goodput of the slots, Mbit/s")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right")
    all_at_once.plot(column(rows, "workers"), column(rows, "scheduled_mbps"), "o", color=ORANGE, label="ns-2, slots")
    all_at_once.plot(column(rows, "workers"), column(rows, "unscheduled_mbps"), "^", color=VERMILION, label="ns-2, all at once")
    all_at_once.plot(column(rows, "workers"), column(rows, "unscheduled_model_mbps"), "--", color=INK, linewidth=1,
                     label="all at once, model of collapse")
    all_at_once.set_xscale("log")
    all_at_once.set_yscale("log")
    all_at_once.xaxis.set_major_formatter("{x:g}")
    all_at_once.yaxis.set_major_formatter("{x:g}")
    all_at_once.set_ylabel("goodput, Mbit/s")
    all_at_once.set_xlabel("workers N")
    all_at_once.legend(loc="lower left")
    return figure


_FEW_6 = (*range(1, 13), 15, 16, 20, 21, 25, 26, 30, 31, 40, 41, 50)
_MANY_6 = (60, 100, 150, 200, 300)
_FEW_7 = (5, 8, 9, 10, 15, *range(22, 101, 2))
_MANY_7 = (110, 130, 150, 180, 200, 230, 260, 300, 333, 334, 400, 499, 500, 700, 1000)


def _over_workers(**case):
    """Goodput over N, with SRUs of a fixed size or a block of 1 MB."""
    return Figure(functools.partial(goodput_over_workers, **case), functools.partial(draw_goodput_over_workers, **case))


def figure8(plan):
    """Goodput over the buffer with a block of 1 MB over 25 and 100 workers."""
    return [row for workers in (25, 100)
            for row in simulate(plan, [{"workers": workers, "buffer": kb * 1000} for kb in range(8, 132, 4)])]


def draw_figure8(plan, rows):
    figure, axes_of = pyplot().subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axes, (workers, simulated, *_) in zip(axes_of, by_curve(rows, "workers")):
        model = plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_TIMER, "--workers", int(workers), "--block", papers.BLOCK,
                          "--sweep", "buffer=8000:128000:+250")
        model = [row for row in model if row["n"]]
        axes.plot(column(model, "buffer_bytes", 1e-3), column(model, "goodput_bps", 1e-6), color=BLUE, linewidth=1,
                  label="slots, model")
        kb = column(simulated, "buffer_bytes", 1e-3)
        axes.plot(kb, column(simulated, "scheduled_mbps"), "o", color=ORANGE, label="slots, ns-2")
        axes.plot(kb, column(simulated, "unscheduled_mbps"), "^", color=VERMILION, label="all at once, ns-2")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("buffer, KB")
        axes.set_title(f"N = {workers:g}", loc="left", fontsize=10)
    axes_of[0].set_ylabel("goodput, Mbit/s")
    axes_of[1].legend(loc="lower right")
    return figure


def figure9(plan):
    """Goodput over the timer granularity with a block of 1 MB."""
    timers = ("1us", "10us", "100us", "500us", "1ms", "2ms", "3ms", "5ms", "10ms", "20ms")
    return [row for workers in (25, 50, 100, 200, 500)
            for row in simulate(plan, [{"workers": workers, "timer": timer} for timer in timers], unscheduled=False)]


def draw_figure9(plan, rows):
    figure, axes = pyplot().subplots(figsize=(7.5, 4.2))
    for workers, simulated, colour, _ in by_curve(rows, "workers"):
        model = plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_BUFFER, "--workers", int(workers), "--block", papers.BLOCK,
                          "--sweep", "timer_granularity=1us:20ms:x1.05")
        axes.plot(column(model, "timer_granularity_s", 1e3), column(model, "goodput_bps", 1e-6), color=colour, linewidth=1)
        axes.plot(column(simulated, "timer_granularity_ms"), column(simulated, "scheduled_mbps"), "o", color=colour,
                  label=f"N = {workers:g}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("timer granularity, ms")
    axes.set_ylabel("goodput of the slots, Mbit/s")
    axes.legend(title="lines: model\npoints: ns-2", loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


FIGURES = {"lossless_table2": Figure(table2), "lossless_fig2": Figure(figure2, draw_figure2),
           "lossless_fig6": _over_workers(small=_FEW_6, large=_MANY_6, sru=papers.FIXED_SRU),
           "lossless_fig7": _over_workers(small=_FEW_7, large=_MANY_7),
           "lossless_fig8": Figure(figure8, draw_figure8), "lossless_fig9": Figure(figure9, draw_figure9)}
