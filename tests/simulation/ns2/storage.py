"""The simulations of "Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems" in ns-2: block after
block over connections that stay."""

import ns2
import papers
from plan_plot import BLUE, GREEN, ORANGE, PURPLE, VERMILION, pyplot, save

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE)
_MARKERS = "os^Dv"
SECONDS = 5


def _curves(name, folder, curves, workers, seconds=SECONDS):
    """Goodput over N, a line for each label and its settings."""
    rows = []
    for label, settings in curves.items():
        runs = ns2.run_all([papers.STORAGE | {"workers": count, "seconds": seconds} | settings for count in workers])
        rows += [{"curve": label, "workers": count, "goodput_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts,
                  "drops": run.drops} for count, run in zip(workers, runs)]
    papers.write_csv(folder / f"{name}.csv", rows)
    draw_curves(rows, folder / f"{name}.svg")


def draw_curves(rows, path):
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7.5, 4.2))
    for label, colour, marker in zip(dict.fromkeys(row["curve"] for row in rows), _COLOURS, _MARKERS):
        own = [row for row in rows if row["curve"] == label]
        axes.plot([row["workers"] for row in own], [row["goodput_mbps"] for row in own], color=colour, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers N")
    axes.set_ylabel("goodput, Mbit/s")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    save(figure, path)


def figure6(_, folder):
    """Twice the buffer, twice the servers; with 64 packets it is the collapse of Figs 2 and 4."""
    _curves("storage_fig6", folder, {f"{packets} packets": {"buffer_packets": packets} for packets in (32, 64, 128, 256, 512)},
            (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64))


def figure7(_, folder):
    """The larger the SRU, the smaller the part of the time that is lost to a timeout."""
    _curves("storage_fig7", folder, {f"{size // 1000} KB": {"sru": size} for size in (10_000, 100_000, 256_000, 1_000_000)},
            (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64))


def figure9(_, folder):
    """Reno, NewReno, SACK and what is said to help them."""
    _curves("storage_fig9", folder,
            {"Reno": {"tcp": "Reno"}, "NewReno": {}, "SACK": {"tcp": "Sack1"},
             "NewReno,\nlimited transmit": {"limited_transmit": 1},
             "NewReno,\n1 duplicate ACK": {"duplicate_acks": 1}},
            (1, 2, 4, 6, 8, 12, 16, 24, 32, 48))


def figure12(_, folder):
    """Minimum retransmission timeouts."""
    _curves("storage_fig12", folder,
            {f"{name}, {text}": {"tcp": tcp, "rto_min": rto, "tick": min(0.01, rto / 2)}
             for name, tcp in (("NewReno", "Newreno"), ("Reno", "Reno")) for text, rto in (("200 ms", 0.2), ("200 µs", 0.0002))},
            (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64))


def table3(_, folder):
    """Timeouts in 20 s with 16 servers, by the duplicate ACKs that the sender had had (Fig 11)."""
    rows = []
    cases = {"Reno": {"tcp": "Reno"}, "NewReno": {}, "NewReno, 1 duplicate ACK": {"duplicate_acks": 1},
             "NewReno, hosts take up to 10 us a packet": {"overhead": 1e-5},
             "NewReno, hosts take up to 100 us a packet": {"overhead": 1e-4}}
    runs = ns2.run_all([papers.STORAGE | {"workers": 16, "seconds": 20} | case for case in cases.values()], count_acks=True)
    for name, run in zip(cases, runs):
        rows.append({"tcp": name, "timeouts": run.timeouts, "no_duplicate_ack": run.full_losses,
                     "one_or_two": run.lacks_of_acks, "more": run.timeouts - run.full_losses - run.lacks_of_acks,
                     "blocks": run.blocks})
    papers.write_csv(folder / "storage_table3.csv", rows)


FIGURES = {"storage_fig6": figure6, "storage_fig7": figure7, "storage_fig9": figure9, "storage_fig12": figure12,
           "storage_table3": table3}
