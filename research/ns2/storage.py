"""The simulations of "Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems" in ns-2:
block after block over persistent connections."""

import ns2
import papers
from papers import Figure, column, draw_goodput
from picture import BLUE, VERMILION, pyplot

SECONDS = 5


def _curves(curves, workers, seconds=SECONDS):
    """Goodput over N, with one line for each label and its settings."""
    rows = []
    for label, settings in curves.items():
        runs = ns2.run_all([papers.STORAGE | {"workers": count, "seconds": seconds} | settings for count in workers])
        rows += [{"curve": label, "workers": count, "goodput_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts,
                  "drops": run.drops} for count, run in zip(workers, runs)]
    return rows


def figure5(_):
    """One run that collapses, in intervals of 5 ms."""
    run = ns2.run(**papers.STORAGE | {"workers": 16, "seconds": 2, "sample_every": 0.005}, record_samples=True)
    return [{"time_ms": begin * 1e3, "goodput_mbps": (after - before) * 8e-6 / (end - begin), "timeouts": int(late - early)}
            for (begin, before, early), (end, after, late) in zip(run.samples, run.samples[1:])]


def draw_figure5(_, rows):
    figure, axes = pyplot().subplots(figsize=(7.5, 3.4))
    axes.step(column(rows, "time_ms"), column(rows, "goodput_mbps"), where="post", color=BLUE, linewidth=1.2, label="goodput")
    late = [row for row in rows if row["timeouts"]]
    axes.plot(column(late, "time_ms"), [0] * len(late), "^", color=VERMILION, markersize=7, clip_on=False, zorder=3,
              label="timeouts: flows begin again")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time, ms")
    axes.set_ylabel("goodput in 5 ms, Mbit/s")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    return figure


def figure6(_):
    """Twice the buffer allows twice the servers. With 64 packets it is the collapse of Figs 2 and 4."""
    return _curves({f"{packets} packets": {"buffer_packets": packets} for packets in (32, 64, 128, 256, 512)},
                   (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64))


def figure7(_):
    """A larger SRU reduces the share of time that a timeout costs."""
    return _curves({f"{size // 1000} KB": {"sru": size} for size in (10_000, 100_000, 256_000, 1_000_000)},
                   (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64))


def figure9(_):
    """Reno, NewReno, SACK and their proposed improvements."""
    return _curves({"Reno": {"tcp": "Reno"}, "NewReno": {}, "SACK": {"tcp": "Sack1"},
                    "NewReno,\nlimited transmit": {"limited_transmit": 1},
                    "NewReno,\n1 duplicate ACK": {"duplicate_acks": 1},
                    "NewReno,\nno slow start": {"slow_start": 0}},
                   (1, 2, 4, 6, 8, 12, 16, 24, 32, 48))


def figure12(_):
    """Minimum retransmission timeouts."""
    return _curves({f"{name}, {text}": {"tcp": tcp, "rto_min": rto, "tick": min(0.01, rto / 2)}
                    for name, tcp in (("NewReno", "Newreno"), ("Reno", "Reno"))
                    for text, rto in (("200 ms", 0.2), ("200 µs", 0.0002))},
                   (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64))


def table3(_):
    """Timeouts in 20 s with 16 servers, by the duplicate ACKs that the sender had received (Fig 11)."""
    rows = []
    cases = {"Reno": {"tcp": "Reno"}, "NewReno": {}, "NewReno, 1 duplicate ACK": {"duplicate_acks": 1},
             "NewReno, hosts take up to 10 us a packet": {"overhead": 1e-5},
             "NewReno, hosts take up to 100 us a packet": {"overhead": 1e-4}}
    runs = ns2.run_all([papers.STORAGE | {"workers": 16, "seconds": 20} | case for case in cases.values()], count_acks=True)
    for name, run in zip(cases, runs):
        rows.append({"tcp": name, "timeouts": run.timeouts, "no_duplicate_ack": run.full_losses,
                     "one_or_two": run.lacks_of_acks, "more": run.timeouts - run.full_losses - run.lacks_of_acks,
                     "blocks": run.blocks})
    return rows


def text(_):
    """Settings that only the text mentions: delayed ACKs of 40 ms, the largest buffer."""
    # An SRU of 256 KB has 263 packets, whose last one is always acknowledged late. One of 264 KB has an even number.
    cases = [("delayed ACKs of 40 ms, 264 packets", {"workers": workers, "delayed_ack": 0.04, "sru": 264_000})
             for workers in (1, 2, 3, 4, 5, 6, 7, 8)]
    cases += [("delayed ACKs of 40 ms, 263 packets", {"workers": workers, "delayed_ack": 0.04}) for workers in (1, 3, 5)]
    cases += [("1024 packets", {"workers": workers, "buffer_packets": 1024}) for workers in (32, 64, 128)]
    cases += [("64 packets", {"workers": workers}) for workers in (4, 5, 6, 7, 8, 10, 12, 16, 32, 64)]
    runs = ns2.run_all([papers.STORAGE | {"seconds": 20} | case for _, case in cases])
    return [{"curve": label, "workers": case["workers"], "goodput_mbps": run.goodput, "blocks": run.blocks, "timeouts": run.timeouts,
             "sent": run.sent, "resent": run.resent, "resent_share": run.resent / run.sent}
            for (label, case), run in zip(cases, runs)]


FIGURES = {"storage_fig5": Figure(figure5, draw_figure5), "storage_fig6": Figure(figure6, draw_goodput),
           "storage_fig7": Figure(figure7, draw_goodput), "storage_fig9": Figure(figure9, draw_goodput),
           "storage_fig12": Figure(figure12, draw_goodput), "storage_table3": Figure(table3),
           "storage_text": Figure(text)}
