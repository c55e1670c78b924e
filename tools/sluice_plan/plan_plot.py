#!/usr/bin/env python3
"""Draws what sluice-plan --csv prints: goodput of each policy and what a block risks without a schedule.

    sluice-plan --capacity 1gbit --sru 32kb --workers 64 --sweep buffer=32kb:1mb:x2 --csv | sluice-plan-plot OUT.svg

OUT ends with .svg, .pdf or .png. The axis is what is swept, the number of workers without --sweep. Needs matplotlib
(package python3-matplotlib).
"""

import csv
import sys

# Okabe and Ito's colours, which people with any kind of colour vision tell apart.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")

# Column of the CSV, its factor, and what the axis says. The first one that changes is what was swept: with a block of a
# fixed size the SRU changes with the workers.
_AXES = (
    ("workers", 1, "workers N"),
    ("buffer_bytes", 1 / 1024, "buffer of the port, KiB"),
    ("capacity_bps", 1e-9, "capacity, Gbit/s"),
    ("rtt_s", 1e6, "round trip, µs"),
    ("timer_granularity_s", 1e3, "timer granularity, ms"),
    ("sru_bytes", 1 / 1024, "SRU, KiB"),
)


def pyplot():
    """matplotlib.pyplot with a look of our own: a white ground, which is legible on a dark page as well."""
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"{sys.executable} has no module matplotlib; it is in Debian's package python3-matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    matplotlib.pyplot.rcParams.update({
        "figure.facecolor": "white", "savefig.facecolor": "white", "savefig.bbox": "tight", "savefig.dpi": 120,
        "svg.fonttype": "none", "svg.hashsalt": "sluice", "font.family": "sans-serif", "font.size": 10,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd",
        "grid.linewidth": 0.6, "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 4,
    })
    return matplotlib.pyplot


def save(figure, path):
    # Without a date the same data make the same file.
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def column(rows, key, factor=1.0):
    return [float(row[key]) * factor if row[key] else float("nan") for row in rows]


def spans_decades(values):
    return min(values) > 0 and max(values) / min(values) >= 16


def read_rows(lines):
    rows = list(csv.DictReader(lines))
    missing = {key for key, *_ in _AXES} - set(rows[0] if rows else {})
    if missing:
        sys.exit("there are no rows of sluice-plan --csv on the standard input; it lacks " + ", ".join(sorted(missing)))
    return rows


def draw(rows, path):
    plot = pyplot()
    key, factor, label = next((axis for axis in _AXES if len({row[axis[0]] for row in rows}) > 1), _AXES[0])
    x = column(rows, key, factor)
    marker = "o" if len(rows) <= 40 else None
    figure, (goodput, risk) = plot.subplots(2, 1, sharex=True, figsize=(7.5, 5.4), height_ratios=(3, 1))
    goodput.plot(x, column(rows, "capacity_bps", 1e-6), color="#888888", linestyle=":", label="the link")
    goodput.plot(x, column(rows, "grants_goodput_bps", 1e-6), color=BLUE, marker=marker, label="grants")
    goodput.plot(x, column(rows, "goodput_bps", 1e-6), color=ORANGE, linestyle="--", marker=marker, label="batches")
    # The cells are empty if the responses exceed the buffer.
    goodput.plot(x, column(rows, "unscheduled_goodput_bps", 1e-6), color=VERMILION, linestyle="-.", marker=marker,
                 label="unscheduled,\nif all fit")
    goodput.set_ylabel("goodput, Mbit/s")
    goodput.set_ylim(bottom=0)
    goodput.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    risk.plot(x, column(rows, "collapse_block_timeout_probability"), color=VERMILION, linestyle="-.", marker=marker)
    risk.set_ylabel("a block's timeout,\nqualitative")
    risk.set_ylim(-0.03, 1.03)
    risk.set_xlabel(label)
    if spans_decades(x):
        risk.set_xscale("log", base=2 if key != "timer_granularity_s" else 10)
        risk.xaxis.set_major_formatter("{x:g}")
    save(figure, path)


def main():
    if len(sys.argv) != 2 or not sys.argv[1].endswith((".svg", ".pdf", ".png")):
        sys.exit(__doc__)
    draw(read_rows(sys.stdin), sys.argv[1])


if __name__ == "__main__":
    main()
