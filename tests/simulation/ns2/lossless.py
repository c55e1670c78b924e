"""The figures of "Solving the TCP-incast Problem with Application-Level Scheduling": its schedule by sluice-plan and in ns-2, and
the same reads without one."""

import pathlib
import tempfile

import ns2
import papers
from plan_plot import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, column, pyplot, save


def table2(plan, folder):
    """How the window of one worker with an SRU of 9 packets grows, ACK by ACK."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = pathlib.Path(scratch, "trace")
        ns2.run(workers=1, sru=9000, jitter=0, trace=trace, variables="cwnd_ ack_ t_seqno_")
        lines = [line.split() for line in trace.read_text().splitlines()]
    state = {"cwnd_": 1.0, "ack_": -1.0, "t_seqno_": 0.0}
    rows = []
    # t_seqno_ is the next packet and ack_ the last one that is acknowledged; packet 0 is the SYN.
    for time in dict.fromkeys(line[0] for line in lines):
        state |= {line[5]: float(line[6]) for line in lines if line[0] == time}
        in_flight = state["t_seqno_"] - max(state["ack_"], 0) - 1
        if state["t_seqno_"] > 1:
            rows.append({"time_ms": float(time) * 1e3, "cwnd": int(state["cwnd_"]), "wnd": int(in_flight),
                         "r": int(10 - state["t_seqno_"])})
    papers.write_csv(folder / "lossless_table2.csv", rows)
    wnd_max = plan.lossless(1, sru=9000)["wnd_max"]
    print(f"most in flight: {max(row['wnd'] for row in rows)} packets; wnd_max: {wnd_max:.0f}")


def figure2(plan, folder):
    """The schedule of 12 workers with 10 KB each: who answers when."""
    plot = pyplot()
    row = plan.lossless(12, sru=papers.FIXED_SRU)
    slot, batches = row["slot_s"] * 1e3, int(row["batches"])
    figure, axes = plot.subplots(figsize=(7, 3.2))
    starts = [slot * (i % batches) for i in range(12)]
    for batch in range(batches + 1):
        axes.axvline(batch * slot, color="#888888", linestyle=":", linewidth=1)
    axes.barh([i + 1 for i in range(12)], row["sru_time_s"] * 1e3, left=starts, height=0.7, color=BLUE)
    axes.set_xlabel("time, ms")
    axes.set_ylabel("worker i")
    axes.invert_yaxis()
    axes.set_title(f"n = {row['n']:.0f}, k = {batches} batches, slots of {slot:g} ms", loc="left", fontsize=10)
    save(figure, folder / "lossless_fig2.svg")
    papers.write_csv(folder / "lossless_fig2.csv",
                     [{"worker": i + 1, "start_ms": start, "end_ms": start + row["sru_time_s"] * 1e3}
                      for i, start in enumerate(starts)])


def simulate(plan, cases, unscheduled=True, seeds=(1,)):
    """For each case, which are the arguments of Plan.lossless: what the model says and what ns-2 does, with the slots and with
    all workers at once. Means over the seeds, of which each has its own jitter."""
    planned = [plan.lossless(**case) for case in cases]
    results = []
    for case, row in zip(cases, planned):
        read = {"workers": case["workers"], "sru": int(row["sru_bytes"]), "buffer": int(row["buffer_bytes"])}
        # The last SRU of a block may be shorter, and ns-2 sends whole packets.
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


def numbers(rows, key):
    return [row[key] if row[key] != "" else float("nan") for row in rows]


def _goodput_over_workers(name, plan, folder, small, large, sru=None):
    size = {"sru": sru} if sru else {}
    rows = simulate(plan, [{"workers": workers} | size for workers in [*small, *large]])
    papers.write_csv(folder / f"{name}.csv", rows)
    draw_goodput_over_workers(rows, plan, folder / f"{name}.svg", small, large, sru)


def draw_goodput_over_workers(rows, plan, path, small, large, sru):
    last = 1000
    flags = ("--sru", sru) if sru else ("--block", papers.BLOCK)
    model = [row for row in plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_BUFFER, *papers.LOSSLESS_TIMER, "--workers", last,
                                      *flags) if row["n"]]
    plot = pyplot()
    figure, (few, many, all_at_once) = plot.subplots(3, 1, figsize=(7.5, 9))
    for axes, workers, until in ((few, small, max(small)), (many, large, last)):
        shown = [row for row in rows if row["workers"] in workers and row["n"]]
        drawn = [row for row in model if min(row["workers"] for row in shown) <= row["workers"] <= until]
        axes.plot(column(drawn, "workers"), column(drawn, "goodput_bps", 1e-6), color=BLUE, linewidth=1, label="model")
        axes.plot(numbers(shown, "workers"), numbers(shown, "scheduled_mbps"), "o", color=ORANGE, markersize=3.5,
                  label="ns-2, 0 drops" if not any(numbers(shown, "scheduled_drops")) else "ns-2")
        axes.set_ylabel("goodput of the slots, Mbit/s")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right")
    all_at_once.plot(numbers(rows, "workers"), numbers(rows, "scheduled_mbps"), "o", color=ORANGE, label="ns-2, slots")
    all_at_once.plot(numbers(rows, "workers"), numbers(rows, "unscheduled_mbps"), "^", color=VERMILION, label="ns-2, all at once")
    all_at_once.plot(numbers(rows, "workers"), numbers(rows, "unscheduled_model_mbps"), "--", color=BLACK, linewidth=1,
                     label="all at once, model of collapse")
    all_at_once.set_xscale("log")
    all_at_once.set_yscale("log")
    all_at_once.xaxis.set_major_formatter("{x:g}")
    all_at_once.yaxis.set_major_formatter("{x:g}")
    all_at_once.set_ylabel("goodput, Mbit/s")
    all_at_once.set_xlabel("workers N")
    all_at_once.legend(loc="lower left")
    save(figure, path)


def figure6(plan, folder):
    """Goodput over N with SRUs of 10 KB."""
    _goodput_over_workers("lossless_fig6", plan, folder, [*range(1, 13), 15, 16, 20, 21, 25, 26, 30, 31, 40, 41, 50],
                          [60, 100, 150, 200, 300], sru=papers.FIXED_SRU)


def figure7(plan, folder):
    """Goodput over N with a block of 1 MB."""
    _goodput_over_workers("lossless_fig7", plan, folder, [5, 8, 9, 10, 15, *range(22, 101, 2)],
                          [110, 130, 150, 180, 200, 230, 260, 300, 333, 334, 400, 499, 500, 700, 1000])


def figure8(plan, folder):
    """Goodput over the buffer with a block of 1 MB over 25 and 100 workers."""
    plot = pyplot()
    figure, axes_of = plot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    rows = []
    for axes, workers in zip(axes_of, (25, 100)):
        simulated = simulate(plan, [{"workers": workers, "buffer": kb * 1000} for kb in (*range(8, 132, 4),)])
        rows += simulated
        model = plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_TIMER, "--workers", workers, "--block", papers.BLOCK,
                          "--sweep", "buffer=8000:128000:+250")
        model = [row for row in model if row["n"]]
        axes.plot(column(model, "buffer_bytes", 1e-3), column(model, "goodput_bps", 1e-6), color=BLUE, linewidth=1,
                  label="slots, model")
        kb = [row["buffer_bytes"] / 1000 for row in simulated]
        axes.plot(kb, numbers(simulated, "scheduled_mbps"), "o", color=ORANGE, label="slots, ns-2")
        axes.plot(kb, numbers(simulated, "unscheduled_mbps"), "^", color=VERMILION, label="all at once, ns-2")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("buffer, KB")
        axes.set_title(f"N = {workers}", loc="left", fontsize=10)
    axes_of[0].set_ylabel("goodput, Mbit/s")
    axes_of[1].legend(loc="lower right")
    papers.write_csv(folder / "lossless_fig8.csv", rows)
    save(figure, folder / "lossless_fig8.svg")


def figure9(plan, folder):
    """Goodput over the timer granularity with a block of 1 MB."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7.5, 4.2))
    rows = []
    for workers, colour in zip((25, 50, 100, 200, 500), (BLUE, ORANGE, GREEN, VERMILION, PURPLE)):
        model = plan.rows(*papers.LOSSLESS_PLAN, *papers.LOSSLESS_BUFFER, "--workers", workers, "--block", papers.BLOCK,
                          "--sweep", "timer_granularity=1us:20ms:x1.05")
        axes.plot(column(model, "timer_granularity_s", 1e3), column(model, "goodput_bps", 1e-6), color=colour, linewidth=1)
        timers = ("1us", "10us", "100us", "500us", "1ms", "2ms", "3ms", "5ms", "10ms", "20ms")
        simulated = simulate(plan, [{"workers": workers, "timer": timer} for timer in timers], unscheduled=False)
        rows += simulated
        axes.plot(numbers(simulated, "timer_granularity_ms"), numbers(simulated, "scheduled_mbps"), "o", color=colour,
                  label=f"N = {workers}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("timer granularity, ms")
    axes.set_ylabel("goodput of the slots, Mbit/s")
    axes.legend(title="lines: model\npoints: ns-2", loc="center left", bbox_to_anchor=(1.01, 0.5))
    papers.write_csv(folder / "lossless_fig9.csv", rows)
    save(figure, folder / "lossless_fig9.svg")


FIGURES = {"lossless_table2": table2, "lossless_fig2": figure2, "lossless_fig6": figure6, "lossless_fig7": figure7,
           "lossless_fig8": figure8, "lossless_fig9": figure9}
