#!/usr/bin/env python3
"""The numbers of research/papers.md are those of research/papers/*.csv, and the model's columns of these are what sluice-plan gives.

    papers_page_test.py SLUICE_PLAN [unittest arguments]

Each line of the page with one of our numbers is rendered again below from the CSVs, with the printed numbers as literals. All other
numbers of the page, which are settings and printed ones, must be those of a list. It needs neither ns-2 nor matplotlib;
research/ns2/papers_test.py simulates some CSVs again.
"""

import csv
import hashlib
import pathlib
import re
import sys
import unittest

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_PAGE = _ROOT / "research/papers.md"
_DATA = _ROOT / "research/papers"
_PLAN = None

sys.path.insert(0, str(_ROOT / "research/ns2"))
import papers  # noqa: E402

LINK = 1000  # Mbit/s
HALF = LINK / 2


def rows(name, **where):
    with open(_DATA / f"{name}.csv", newline="") as file:
        found = [{key: cell.replace("\n", " ") for key, cell in row.items()} for row in csv.DictReader(file)]
    return [row for row in found if all(row[key] == str(value) for key, value in where.items())]


def value(name, column, **where):
    found = rows(name, **where)
    assert len(found) == 1, (name, where, len(found))
    return float(found[0][column])


def values(name, column, key, wanted, **where):
    return [value(name, column, **where | {key: one}) for one in wanted]


def listed(numbers, form=".0f"):
    return ", ".join(f"{number:{form}}" for number in numbers)


def cells(numbers, form=".0f"):
    return " | ".join(f"{number:{form}}" for number in numbers)


def percent(ratio, form=".0f"):
    """+6 %, −24 %; with the minus of typography."""
    return f"{100 * ratio:+{form}} %".replace("-", "−")


def share(ratio, form=".0f"):
    return f"{100 * ratio:{form}} %"


def first(found, column, test):
    return next((int(row["workers"]) for row in found if test(float(row[column]))), None)


def last(found, column, test):
    return first(found[::-1], column, test)


def lossless():
    fig6 = lambda column, *workers: values("lossless_fig6", column, "workers", workers)  # noqa: E731
    fig7 = lambda column, *workers: values("lossless_fig7", column, "workers", workers)  # noqa: E731
    fig8 = lambda column, workers, kb: value("lossless_fig8", column, workers=workers, buffer_bytes=kb * 1000)  # noqa: E731
    fig9 = lambda workers, ms: value("lossless_fig9", "scheduled_mbps", workers=workers, timer_granularity_ms=ms)  # noqa: E731
    above = {}
    scheduled = []
    for name in ("lossless_fig6", "lossless_fig7", "lossless_fig8", "lossless_fig9"):
        own = [row for row in rows(name) if row["model_mbps"]]
        scheduled += own
        ratios = [float(row["scheduled_mbps"]) / float(row["model_mbps"]) - 1 for row in own]
        above[name] = f"{100 * min(ratios):.1f} to {100 * max(ratios):.1f} %"
    lost = [sum(float(row[f"scheduled_{what}"]) for row in scheduled) for what in ("drops", "timeouts")]
    model = lambda workers, sru=None: _PLAN.lossless(workers, sru)["goodput_bps"] / 1e6  # noqa: E731
    time = lambda workers: _PLAN.lossless(workers)["sru_time_s"] * 1e3 + 0.02  # noqa: E731
    ratio = {n: fig6("scheduled_mbps", n)[0] / fig6("model_mbps", n)[0] for n in (5, 10, 50, 100)}
    tooth = fig6("scheduled_mbps", 16)[0] / fig6("scheduled_mbps", 15)[0] - 1
    all_at_once = fig6("unscheduled_mbps", 5, 20, 200)
    block = fig7("unscheduled_mbps", 60, 130)
    of_25 = {int(row["buffer_bytes"]) // 1000: float(row["unscheduled_mbps"]) for row in rows("lossless_fig8", workers=25)}
    low = max(kb for kb, mbps in of_25.items() if mbps < HALF)
    high = min(kb for kb, mbps in of_25.items() if mbps > 900)
    assert all((mbps > 900) == (kb >= high) for kb, mbps in of_25.items())
    of_100 = [float(row["unscheduled_mbps"]) for row in rows("lossless_fig8", workers=100)]
    falls = max(1 - after / before for before, after in zip(of_100, of_100[1:]))
    few = (11, 12, 15, 16, 20, 41, 50, 100, 300)
    plan12 = _PLAN.lossless(12, papers.FIXED_SRU)
    return [
        f"| model, 10 KB each, N = 15, 16 | 203, 162 Mbit/s | {model(15, 10_000):.2f}, {int(model(16, 10_000) * 100) / 100:.2f} | "
        "the paper truncates |",
        f"| model, block of 1 MB, N = 499, 500 | 119, 241 Mbit/s | {model(499):.2f}, {model(500):.2f} | the paper truncates |",
        f"| model, T + d_max at N = 25, 50 | 2.858, 2.329 ms | {time(25):.4f}, {time(50):.4f} | rounding |",
        f"| slots in ns-2, drops and timeouts | none | {lost[0]:.0f} and {lost[1]:.0f} in all {len(scheduled)} scheduled runs of Figs 6 "
        "to 9 | |",
        f"| slots in ns-2, 10 KB each, above the model | little; far for N <= 5 | {100 * ratio[100] - 100:.1f} % at N = 100, "
        f"{100 * ratio[50] - 100:.1f} % at 50, {100 * ratio[10] - 100:.0f} % at 10, {ratio[5]:.1f} times at 5 | |",
        f"| the tooth from N = 15 to 16 | −20 % (model) | {percent(tooth, '.1f')} in ns-2 | |",
        f"| all at once, 10 KB each, N = 5, 20, 200 | 600, 8, 1.3 Mbit/s | {all_at_once[0]:.0f}, {all_at_once[1]:.2f}, "
        f"{all_at_once[2]:.2f} | "
        + ", ".join(percent(ours / printed - 1) for ours, printed in zip(all_at_once, (600, 8, 1.3))) + " |",
        f"| all at once, 10 KB each, N > 200 | <= 3 Mbit/s | {fig6('unscheduled_mbps', 300)[0]:.2f} at N = 300 | |",
        f"| all at once, block, N = 10, 15 | > 900, < 40 Mbit/s | {listed(fig7('unscheduled_mbps', 10, 15), '.1f')} | not reproduced at "
        "N = 10 |",
        f"| all at once, block, N = 60, 130 | 10, 1.3 Mbit/s | {block[0]:.1f}, {block[1]:.2f} | {percent(block[0] / 10 - 1)}, "
        f"{percent(block[1] / 1.3 - 1)} |",
        f"| all at once, N = 25, buffer | <= 39 up to 96 KB, > 900 above | <= {max(m for k, m in of_25.items() if k <= low):.1f} up to "
        f"{low} KB, > 900 from {high} KB | not reproduced at {high} to 96 KB |",
        f"| all at once, N = 100, 8 and 128 KB | 0.3, 29 Mbit/s | {fig8('unscheduled_mbps', 100, 8):.2f}, "
        f"{fig8('unscheduled_mbps', 100, 128):.1f}; {fig8('unscheduled_mbps', 100, 12):.2f} with 12 KB | not reproduced |",
        f"A port of 8 KB holds {8000 // 1040} packets. Between 8 and 128 KB the paper's goodput grows monotonically; ours falls within "
        f"some steps, by at most {100 * falls:.1f} %.",
        f"| N | {' | '.join(map(str, few))} |",
        f"| all at once in ns-2, Mbit/s | {cells(fig6('unscheduled_mbps', *few), '.2f')} |",
        f"| model of collapse, Mbit/s | {cells(fig6('unscheduled_model_mbps', *few), '.2f')} |",
        f"is the schedule of 12 workers with 10 KB each in {plan12['batches']:.0f} batches.",
        f"ns-2 is {above['lossless_fig7']} above the model at each N, without a drop. It jumps with the model from "
        f"{fig7('scheduled_mbps', 499)[0]:.1f} to {fig7('scheduled_mbps', 500)[0]:.1f} Mbit/s between 499 and 500 workers (printed: 119 to "
        "241).",
        f"With 25 workers the slots reach {fig8('scheduled_mbps', 25, 32):.0f} Mbit/s at 32 KB and "
        f"{fig8('scheduled_mbps', 25, 36):.0f} Mbit/s at 36 to 48 KB,",
        f"ns-2 is {above['lossless_fig8']} above the model.",
        f"at N = 25 and 50 a timer of 2 ms gives {fig9(25, 2):.1f} and {fig9(50, 2):.1f} Mbit/s, one of 3 ms {fig9(25, 3):.1f} and "
        f"{fig9(50, 3):.1f}. ns-2 is {above['lossless_fig9']} above the model.",
    ]


def storage():
    fig6 = lambda packets, *servers: values(  # noqa: E731
        "storage_fig6", "goodput_mbps", "workers", servers, curve=f"{packets} packets")
    fig9 = lambda curve, *servers: values("storage_fig9", "goodput_mbps", "workers", servers, curve=curve)  # noqa: E731
    fig12 = lambda curve, *servers: values("storage_fig12", "goodput_mbps", "workers", servers, curve=curve)  # noqa: E731
    text = lambda curve, column, *servers: values("storage_text", column, "workers", servers, curve=curve)  # noqa: E731
    ratios = lambda above, below: listed([a / b for a, b in zip(above, below)], ".1f")  # noqa: E731
    table3 = {row["tcp"]: {key: float(number) for key, number in row.items() if key != "tcp"} for row in rows("storage_table3")}
    reno, newreno, dup1, ten, hundred = table3.values()
    few = (6, 8, 12, 16, 24, 32, 48)
    rto = (8, 12, 16, 24, 32)
    fastest = {int(row["workers"]): float(row["goodput_mbps"]) for row in rows("storage_fig12", curve="NewReno, 200 µs")}
    best = max(fastest, key=fastest.get)
    onsets = [first(rows("storage_fig6", curve=f"{packets} packets"), "goodput_mbps", lambda mbps: mbps < 600)
              for packets in (32, 64, 128, 256, 512)]
    small, large = (value("storage_fig7", "goodput_mbps", curve=curve, workers=64) for curve in ("10 KB", "1000 KB"))
    against = lambda curve: ratios(fig9(curve, *few), fig9("NewReno", *few))  # noqa: E731
    counted = lambda run: (f"{run['timeouts']:.0f} | {run['no_duplicate_ack']:.0f} | {run['one_or_two']:.0f} | "  # noqa: E731
                           f"{run['more']:.0f}")
    intervals = rows("storage_fig5")
    idle = sum(1 for row in intervals if float(row["goodput_mbps"]) == 0)
    resent = [100 * one for one in text("64 packets", "resent_share", 5, 6, 7, 8, 10, 16)]
    even, odd = (f"delayed ACKs of 40 ms, {count} packets" for count in (264, 263))
    largest = text("1024 packets", "goodput_mbps", 64, 128)
    return [
        f"| onset (Figs 2 to 4) | at 7 or 8 servers, an order of magnitude | {listed(fig6(64, 5, 6, 7, 8, 10))} Mbit/s at N = 5, 6, 7, 8, "
        "10 | |",
        "| twice the buffer (Fig 6) | twice the servers | 32, 64, 128, 256, 512 packets: below 600 Mbit/s first at "
        f"{listed(onsets)} | |",
        f"| Table 3, NewReno: blocks, timeouts in 20 s | 84, 442 | {newreno['blocks']:.0f}, {newreno['timeouts']:.0f} | "
        f"{percent(newreno['blocks'] / 84 - 1)}, {percent(newreno['timeouts'] / 442 - 1)} |",
        f"| Table 3, Reno: blocks, timeouts | 49, 589 | {reno['blocks']:.0f}, {reno['timeouts']:.0f} | "
        f"{percent(reno['blocks'] / 49 - 1)}, {percent(reno['timeouts'] / 589 - 1)} |",
        f"| Table 3, 1 duplicate ACK: blocks, timeouts | 89, 349 | {dup1['blocks']:.0f}, {dup1['timeouts']:.0f} | not reproduced: "
        f"{percent(dup1['blocks'] / 89 - 1)}, {percent(dup1['timeouts'] / 349 - 1)} |",
        "| Table 3, full window losses: NewReno, Reno, 1 duplicate ACK | 362, 464, 313 | at most "
        f"{listed(run['no_duplicate_ack'] for run in (newreno, reno, dup1))} | not reproduced, see below |",
        "| RTO_min of 200 µs (Fig 12), NewReno | an order of magnitude for 8 to 32 servers | "
        f"{ratios(fig12('NewReno, 200 µs', *rto), fig12('NewReno, 200 ms', *rto))} times at N = {listed(rto)} | |",
        "| RTO_min of 200 µs (Fig 12), Reno | an order of magnitude for 8 to 32 servers | "
        f"{ratios(fig12('Reno, 200 µs', *rto), fig12('Reno, 200 ms', *rto))} times at the same N | |",
        f"| RTO_min of 200 µs, NewReno, 64 servers | −30 % | {percent(fastest[64] / fastest[best] - 1)} from the best, at N = {best} | |",
        f"| NewReno against Reno (Fig 9) | up to an order of magnitude | {ratios(fig9('NewReno', *few), fig9('Reno', *few))} times at N = "
        f"{listed(few)} | |",
        f"| SACK against NewReno (Fig 9) | worse | {against('SACK')} times at the same N | better at N = 6 and 8 |",
        f"| limited transmit (Fig 10) | no benefit | {against('NewReno, limited transmit')} times NewReno at the same N | not reproduced |",
        f"| 1 duplicate ACK (Fig 10) | no benefit | {against('NewReno, 1 duplicate ACK')} times NewReno at the same N | not reproduced |",
        f"| slow start off (Fig 10) | no benefit | {against('NewReno, no slow start')} times NewReno at the same N | better at N = 8 |",
        f"| retransmitted packets (text) | about 2 % | {listed(resent, '.1f')} % at N = 5, 6, 7, 8, 10, 16 | |",
        f"| buffer of 1024 KB (text), 64 and 128 servers | about 65 % of the link, 800 Mbit/s | 1024 packets: {largest[0]:.0f} and "
        f"{largest[1]:.0f} Mbit/s | not reproduced at 64 |",
        "| delayed ACKs of 40 ms (text, real switch) | 900 to 500 Mbit/s from 3 to 5 servers | "
        f"{listed(text(even, 'goodput_mbps', 3, 4, 5))} Mbit/s at N = 3, 4, 5 | a deeper fall |",
        f"| SRUs (Fig 7), 64 servers | 1000 KB two orders of magnitude above 10 KB | {large:.0f} and {small:.0f} Mbit/s, a factor of "
        f"{large / small:.0f} | not reproduced |",
        f"timeouts end: {idle} of {len(intervals)} intervals carry nothing.",
        "With delayed ACKs the SRU must be an even number of packets, here 264. A response of 263 packets ends with a delayed ACK in each "
        f"block, and a single server reaches {text(odd, 'goodput_mbps', 1)[0]:.0f} Mbit/s.",
        f"| Reno | {counted(reno)} |", f"| NewReno | {counted(newreno)} |", f"| NewReno, 1 duplicate ACK | {counted(dup1)} |",
        f"| NewReno, hosts take up to 10 µs for a packet | {counted(ten)} |",
        f"| NewReno, hosts take up to 100 µs for a packet | {counted(hundred)} |",
        f"{share(newreno['no_duplicate_ack'] / newreno['timeouts'])} of NewReno's timeouts, and "
        f"{share(hundred['no_duplicate_ack'] / hundred['timeouts'])} if hosts take up to 100 µs for each packet.",
    ]


def fine_grained():
    goodput = lambda curve, *servers: values("fine_grained_servers", "goodput_mbps", "workers", servers, curve=curve)  # noqa: E731
    fig14 = lambda curve, column, *servers: values("fine_grained_fig14", column, "workers", servers, curve=curve)  # noqa: E731
    sweep = lambda servers: [float(row["goodput_mbps"])  # noqa: E731
                             for row in rows("fine_grained_rto_min", curve=f"N = {servers}")]
    slow, fast = goodput("200 ms", 6, 8, 16, 32, 47), goodput("200 µs", 8, 16, 24, 32, 47)
    alone, = goodput("200 µs", 1)
    few = (10, 12, 14, 16)
    less = {delay: [without - late for without, late in
                    zip(fig14("no delayed ACK", "goodput_mbps", *few), fig14(delay, "goodput_mbps", *few))] for delay in ("200 µs", "40 ms")}
    short = [1 - mbps / 100 for mbps in less["40 ms"]]
    onset = {rto: first(rows("fine_grained_servers", curve=rto), "goodput_mbps", lambda mbps: mbps < alone / 2)
             for rto in ("200 ms", "10 ms", "5 ms", "1 ms", "200 µs")}
    assert onset["1 ms"] is None and onset["200 µs"] is None
    assert value("fine_grained_servers", "timeouts", curve="200 ms", workers=4) == 1
    low = max(1 - mbps / sweep(servers)[0] for servers in (4, 8) for mbps in sweep(servers)[:3])
    at32 = [goodput(rto, 32)[0] for rto in ("1 ms", "200 µs")]
    timeouts = [fig14(delay, "timeouts", 16)[0] for delay in ("40 ms", "no delayed ACK", "200 µs")]
    random = [values("fine_grained_random", "goodput_mbps", "workers", (64, 128, 256), curve=curve)
              for curve in ("RTO", "RTO × (1 + U(0, 0.5))")]
    wide, worst = [], {"timeouts": 0, "goodput_mbps": 0, "sent": 0}
    for hosts, label in (("0.01", "10 µs"), ("5", "5 ms"), ("20", "20 ms"), ("50", "50 ms")):
        runs = rows("fine_grained_wide_area", curve=f"hosts take up to {hosts} ms")
        assert [float(run["rto_min_ms"]) for run in runs] == [200, 10, 1, 0.2]
        wide.append(f"| {label} | " + " | ".join(f"{float(run['goodput_mbps']):.2f}, {run['timeouts']}, {run['sent']}" for run in runs) + " |")
        for run in runs[1:]:
            for column, ratio in (("timeouts", 1), ("sent", 1), ("goodput_mbps", -1)):
                worst[column] = max(worst[column], (float(run[column]) / float(runs[0][column])) ** ratio)
    return [
        f"| 200 ms | 1 to 10 % of the link | {listed(slow)} Mbit/s at N = 6, 8, 16, 32, 47 | {share(slow[0] / LINK)} to "
        f"{share(slow[-1] / LINK, '.1f')} |",
        f"| microseconds, up to 47 servers | full throughput (real hosts) | 200 µs: {listed(fast)} Mbit/s at N = 8, 16, 24, 32, 47; "
        f"{alone:.0f} at N = 1 | {share(1 - fast[-1] / alone)} less at 47 |",
        "| delayed ACKs of 200 µs, more than 8 servers (Fig 14, real hosts) | 15 to 30 Mbit/s less than without | "
        f"{listed(less['200 µs'], '.1f')} less at N = {listed(few)} | {less['200 µs'][2]:.1f} is out of the range |",
        "| delayed ACKs of 40 ms, more than 8 servers (Fig 14, real hosts) | 100 to 200 Mbit/s less than without | "
        f"{listed(less['40 ms'], '.1f')} less at N = {listed(few)} | not reproduced: {100 * min(short):.0f} to {share(max(short))} short of "
        "the range |",
        f"Goodput first falls below half of the link at {onset['200 ms']} servers with 200 ms, at {onset['10 ms']} with 10 ms, and at "
        f"{onset['5 ms']} with 5 ms. With 1 ms and 200 µs it does not up to 47. At 4 servers and 200 ms a single timeout in "
        f"{value('fine_grained_servers', 'blocks', curve='200 ms', workers=4):.0f} blocks halves the goodput. The last point with 200 ms, at "
        f"47 servers, has {value('fine_grained_servers', 'blocks', curve='200 ms', workers=47):.0f} blocks. Shorter is not always better: "
        f"at 32 servers 1 ms reaches {at32[0]:.0f} Mbit/s and 200 µs {at32[1]:.0f}.",
        f"With 40 ms the server's own timer ends first, and it sends the packet again: {timeouts[0]:.0f} timeouts at N = 16 instead of "
        f"{timeouts[1]:.0f}. With 200 µs it has fewer, {timeouts[2]:.0f}, and still loses time.",
        f"With 4 and 8 servers any RTO_min up to 5 ms is within {100 * low:.0f} % of 200 µs. With 16 and 32 servers each step from 1 ms on",
        f"| N = 16, Mbit/s | {cells(sweep(16))} |", f"| N = 32, Mbit/s | {cells(sweep(32))} |",
        f"| fixed timeouts | {cells(random[0])} |", f"| random timeouts | {cells(random[1])} |",
        *wide,
        f"With up to {worst['timeouts']:.1f} times the timeouts, the goodput falls by at most {100 * (1 - 1 / worst['goodput_mbps']):.1f} % and "
        f"the packets sent grow by at most {100 * (worst['sent'] - 1):.1f} %.",
    ]


def understanding():
    blocks, buffers = ("32 KB", "64 KB", "128 KB", "256 KB", "512 KB"), ("64 KB", "128 KB", "256 KB", "512 KB")
    fig8 = lambda column, workers: values(  # noqa: E731
        "understanding_fig8", column, "curve", ("50 ms", "100 ms", "200 ms"), workers=workers)
    fig9 = lambda tcp, column, *workers: values("understanding_fig9", column, "workers", workers, tcp=tcp)  # noqa: E731
    kinds = {int(row["workers"]): {key: float(number) for key, number in row.items()} for row in rows("understanding_fig3")}
    full = {n: one["full_loss"] / max(1, one["full_loss"] + one["lack_of_acks"] + one["three_or_more"]) for n, one in kinds.items()}
    assert [n for n in kinds if full[n] > 0.5] == [4, 96, 128]
    assert all(one["three_or_more"] > one["full_loss"] + one["lack_of_acks"] for n, one in kinds.items() if 24 <= n <= 64)
    significance = {int(row["workers"]): float(row["median_significance"]) for row in rows("understanding_table2")}
    rejected = [n for n, found in significance.items() if found < 0.05]
    later = [found for n, found in significance.items() if n >= 19]
    window20 = value("understanding_fig6", "window", curve="32 KB", workers=20)
    packets = -(-32 * 1024 // 1460)
    bins = lambda workers, low, high: sum(  # noqa: E731
        float(row["density"]) * float(row["width"]) for row in rows("understanding_fig5", workers=workers)
        if low <= float(row["window"]) + float(row["width"]) / 2 < high)
    curves = {(figure, curve): rows(f"understanding_{figure}", curve=curve)
              for figure, labels in (("fig6", blocks), ("fig7", buffers), ("fig8", ("50 ms", "100 ms", "200 ms"))) for curve in labels}
    waits = lambda column: lambda figure, curve: first(curves[figure, curve], column, lambda found: found >= 0.5)  # noqa: E731
    below = lambda figure, curve: first(curves[figure, curve], "simulated_mbps", lambda mbps: mbps < HALF)  # noqa: E731
    least = lambda figure, curve: last(curves[figure, curve], "simulated_mbps", lambda mbps: mbps >= HALF)  # noqa: E731
    at = lambda figure, curve, workers: value(f"understanding_{figure}", "simulated_mbps", curve=curve, workers=workers)  # noqa: E731
    line = lambda label, figure, labels, of: (  # noqa: E731
        f"| {label} | " + " | ".join("-" if of(figure, one) is None else f"{of(figure, one):.0f}" for one in labels) + " |")
    table = lambda figure, labels: [  # noqa: E731
        line("half of the blocks wait first at N =, ns-2", figure, labels, waits("simulated_block_timeouts")),
        line("half of the blocks wait first at N =, model", figure, labels, waits("block_timeout_probability")),
        line("goodput is below half of the link first at N =", figure, labels, below),
        line("goodput there, Mbit/s", figure, labels, lambda figure, one: at(figure, one, below(figure, one))),
        line("goodput is at least half of the link last at N =", figure, labels, least)]
    steps = lambda of: [of("fig7", one) / of("fig7", other) for other, one in zip(buffers, buffers[1:])  # noqa: E731
                        if of("fig7", other)]
    ranged = lambda found, form=".1f": f"{min(found):{form}} to {max(found):{form}}"  # noqa: E731
    largest = {n: max(blocks, key=lambda curve: at("fig6", curve, n)) for n in (18, 20, 24, 28, 32, 40, 48, 64)}
    assert [n for n, curve in largest.items() if curve != "512 KB"] == [32], largest
    assert largest[32] == "256 KB" and max(blocks, key=lambda curve: at("fig6", curve, 16)) == "512 KB"
    few = [row for found in curves.values() for row in found if float(row["block_timeout_probability"]) < 0.01]
    few_ns2, few_model = ([float(row[key]) for row in few] for key in ("simulated_mbps", "model_mbps"))
    off = lambda row: abs(float(row["model_mbps"]) / float(row["simulated_mbps"]) - 1)  # noqa: E731
    many = [row for (figure, _), found in curves.items() if figure == "fig8" for row in found if int(row["workers"]) >= 20]
    assert max(map(off, many)) < 0.30
    assert max(off(row) for row in many if row["curve"] == "200 ms" and int(row["workers"]) >= 24) < 0.07

    def wrong(label, figure, curve, workers):
        row, = [row for row in curves[figure, curve] if int(row["workers"]) == workers]
        model, simulated = float(row["model_mbps"]), float(row["simulated_mbps"])
        return (f"| {label} | {workers} | {model:.0f} | {simulated:.0f} | {model / simulated:.1f} | "
                f"{share(float(row['simulated_block_timeouts']))} |")

    def against_ns2():
        column = lambda name: [value("understanding_fig8", name, curve="200 ms", workers=n) for n in (20, 24, 28, 40, 64)]  # noqa: E731
        return ["| blocks that wait for a timeout, ns-2 | " + " | ".join(share(one) for one in column("simulated_block_timeouts")) + " |",
                f"| P_block | {cells(column('block_timeout_probability'), '.2f')} |",
                f"| P_TO | {cells(column('timeout_probability'), '.2f')} |",
                f"| goodput in Mbit/s, ns-2 | {cells(column('simulated_mbps'))} |",
                f"| (5) with P_block | {cells(column('model_mbps'))} |",
                f"| (5) as printed, with P_TO | {cells(column('printed_model_mbps'))} |"]

    for figure in ("fig6", "fig7", "fig8"):
        own = [row for (name, _), found in curves.items() if name == figure for row in found]
        worst = max(own, key=lambda row: (float(row["block_timeout_probability"]) < 0.01)
                    * float(row["model_mbps"]) / float(row["simulated_mbps"]))
        assert (worst["curve"], worst["workers"]) == {"fig6": ("32 KB", "6"), "fig7": ("64 KB", "2"), "fig8": ("200 ms", "10")}[figure]
    vegas15, newreno15 = (fig9(tcp, "window", 15)[0] for tcp in ("Vegas", "NewReno"))
    spread = [fig9(tcp, "window_deviation", 15)[0] for tcp in ("Vegas", "NewReno")]
    dctcp = lambda method: [float(row["goodput_mbps"]) for row in rows("understanding_fig10", method=method)]  # noqa: E731
    link = 1e9 * 1460 / 1500
    wait = lambda workers: [100 * one for one in fig8("simulated_block_timeouts", workers)]  # noqa: E731
    return [
        f"so that two connections send whole responses of {value('understanding_fig8', 'window', curve='200 ms', workers=2):.0f} packets at "
        "once.",
        f"(500 Mbit/s) at a few workers and rises again, because the timeouts of a few percent of the blocks are enough: an RTO_min of 200 "
        f"ms is as long as {0.2 / (8 * 65_536 * 8 / link):.0f} blocks of 8 workers.",
        f"| FLT after 15 flows (Fig 3) | > 90 % of the timeouts | {share(full[64])} at N = 64, {share(full[96])} at 96, {share(full[128])} "
        "at 128 | not with a host each; nearly with three hosts, see below |",
        f"| RTO_min of 50, 100, 200 ms (Fig 8) | the same point of collapse | {listed(wait(18))} % of the blocks wait at N = 18; "
        f"{listed(wait(24))} % at 24 | |",
        f"| windows are normal (Table II) | rejected (5 %) at N = 21, 23 of 16 to 30 | rejected at N = {listed(rejected)} by the median block "
        "| other N |",
        f"| 32 KB per worker (Fig 6) | 3 or 4 rounds | {-(-packets // window20):.0f} rounds: {packets} packets, windows of {window20:.1f} at N "
        "= 20 | |",
        f"Timeouts without any are the majority only from N = 96 on, and at N = 4 ({kinds[4]['full_loss']:.0f} of "
        f"{sum(kinds[4][key] for key in ('full_loss', 'lack_of_acks', 'three_or_more')):.0f}). At N = 96 and 128 the windows are "
        f"{kinds[96]['window']:.1f} and {kinds[128]['window']:.1f} packets, and there are more workers than packets in the buffer "
        f"({131_072 // 1500}). From N = 20 to 64 the windows are {ranged([kinds[n]['window'] for n in kinds if 20 <= n <= 64])} packets, and "
        "most timeouts from N = 24 on come after three or more duplicate ACKs.",
        "Of the two kinds that the paper has, "
        f"{share(kinds[64]['full_loss'] / (kinds[64]['full_loss'] + kinds[64]['lack_of_acks']))} are full losses at N = 64.",
        f"At one time the test does not reject a normal distribution at N = 15 and from 19 workers on: the median significance is "
        f"{ranged(later, '.2f')} from N = 19 to 30. At 16, 17 and 18 it is {significance[16]:.2f}, {significance[17]:.2f} and "
        f"{significance[18]:.2f}.",
        f"At N = 15, {share(bins(15, 8.5, 8.9))} of them are between 8.5 and 8.9. At N = 30, {share(bins(30, 0, 4.1))} are below 4.1, "
        f"{share(bins(30, 5.3, 7.8))} between 5.3 and 7.8, and {share(bins(30, 8.8, 9.1))} between 8.8 and 9.1.",
        *table("fig6", blocks),
        *(line(f"goodput at N = {n}, Mbit/s", "fig6", blocks, lambda figure, one, n=n: at(figure, one, n)) for n in (28, 32, 64)),
        *table("fig7", buffers),
        f"Here the factor is {ranged(steps(waits('simulated_block_timeouts')))} by waiting blocks. By goodput it is {ranged(steps(below))} for "
        f"the first N below half of the link, and {ranged(steps(least))} for the last N above it,",
        f"Where it expects fewer than 1 % of the blocks to wait, it promises {ranged(few_model, '.0f')} Mbit/s, and ns-2 has "
        f"{ranged(few_ns2, '.0f')}:",
        *against_ns2(),
        wrong("worst of Fig 7: 64 KB of buffer", "fig7", "64 KB", 2), wrong("worst of Fig 6: 32 KB per worker", "fig6", "32 KB", 6),
        wrong("worst of Fig 8: 200 ms", "fig8", "200 ms", 10), wrong("the default settings", "fig8", "200 ms", 16),
        f"where NewReno has {fig9('NewReno', 'simulated_mbps', 15)[0]:.0f} Mbit/s. Its windows are half as large ({vegas15:.1f} against "
        f"{newreno15:.1f} packets) and hardly differ (a deviation of {spread[0]:.2f} against {spread[1]:.1f}).",
        "At 20 and 25 workers Vegas has {:.0f} and {:.0f} Mbit/s against {:.0f} and {:.0f}. From 30 workers on it has less than NewReno, "
        "{:.0f} against {:.0f}.".format(*fig9("Vegas", "simulated_mbps", 20, 25), *fig9("NewReno", "simulated_mbps", 20, 25),
                                        *fig9("Vegas", "simulated_mbps", 30), *fig9("NewReno", "simulated_mbps", 30)),
        f"| NewReno | {cells(dctcp('NewReno'))} |", f"| NewReno, no SACK | {cells(dctcp('NewReno, no SACK'))} |",
        f"| DCTCP | {cells(dctcp('Dctcp'))} |",
        f"It has {value('understanding_fig10', 'rtos', method='Dctcp', workers=32):.0f} timeout with 32 workers and "
        f"{value('understanding_fig10', 'rtos', method='Dctcp', workers=40):.0f} with 40. With 48 workers the median block takes "
        f"{value('understanding_fig10', 'p50_ms', method='Dctcp', workers=48):.0f} ms: windows of two segments are {2 * 48} packets then, and "
        f"the buffer holds {131_072 // 1500}.",
        "an older one had 177 Mbit/s instead of "
        f"{value('understanding_fig10', 'goodput_mbps', method='Dctcp', workers=40):.0f} for DCTCP with 40 workers.",
    ]


def limits():
    def count(name):
        found = rows(name)
        return f"{sum(1 for row in found if float(row['blocks']) <= 5)} of {len(found)}"

    return [f"Five blocks or fewer are in {count('storage_fig6')} rows of `storage_fig6.csv`, {count('storage_fig7')} of "
            f"`storage_fig7.csv`, {count('storage_fig12')} of `storage_fig12.csv` and {count('understanding_fig7')} of "
            "`understanding_fig7.csv`."]


def interval(row, name, form=".0f", factor=1):
    """The mean and the half of its interval of 95 %."""
    return f"{factor * float(row[f'{name}_mean']):{form}} ± {factor * float(row[f'{name}_half_width']):{form}}"


def lossless_seeds():
    found = rows("lossless_unscheduled_seeds")
    count = int(found[0]["seeds"])

    def row_of(curve, workers, buffer=32):
        row, = [row for row in found if (row["curve"], int(row["workers"]), int(row["buffer_bytes"])) == (curve, workers, buffer * 1000)]
        return row

    def line(label, printed, row, form):
        return (f"| {label} | {printed} | {interval(row, 'mbps', form)} | {float(row['mbps_min']):{form}} to {float(row['mbps_max']):{form}} | "
                f"{row['runs_with_timeouts']} |")

    workers = range(2, 19)
    waits = lambda curve: " | ".join(row_of(curve, one)["runs_with_timeouts"] for one in workers)  # noqa: E731
    slots = rows("lossless_slots_seeds")
    assert all(float(row["drops"]) == float(row["timeouts"]) == 0 for row in slots)
    assert all(row["runs_with_timeouts"] in ("0", str(count)) for row in found if row["curve"] in ("fig6", "fig7", "fig8"))
    spread = max(float(row["mbps_half_width"]) / float(row["mbps_mean"]) for row in slots)
    assert all(float(row["mbps_min"]) > float(row["model_mbps"]) for row in slots)
    return [
        line("10 KB each, N = 5", "600", row_of("fig6", 5), ".0f"), line("10 KB each, N = 20", "8", row_of("fig6", 20), ".2f"),
        line("10 KB each, N = 200", "1.3", row_of("fig6", 200), ".2f"), line("10 KB each, N = 300", "<= 3", row_of("fig6", 300), ".2f"),
        line("block, N = 10", "> 900", row_of("fig7", 10), ".0f"), line("block, N = 15", "< 40", row_of("fig7", 15), ".0f"),
        line("block, N = 60", "10", row_of("fig7", 60), ".1f"), line("block, N = 130", "1.3", row_of("fig7", 130), ".2f"),
        *(line(f"block, N = 25, {kb} KB", printed, row_of("fig8", 25, kb), ".0f")
          for kb, printed in ((84, "<= 39"), (88, "<= 39"), (96, "<= 39"), (100, "> 900"))),
        line("block, N = 100, 8 KB", "0.3", row_of("fig8", 100, 8), ".2f"),
        line("block, N = 100, 128 KB", "29", row_of("fig8", 100, 128), ".1f"),
        f"| N | {' | '.join(map(str, workers))} |",
        f"| the paper's settings | {waits('fig7')} |", f"| `max_window=20` | {waits('windows of 20')} |",
        f"| `overhead=1e-5` | {waits('overhead 1e-5')} |", f"| `initial_window=2` | {waits('initial window 2')} |",
        f"The slots lose nothing with {count} seeds in {len(slots)} settings of Figs 6 to 9, and each of these {count * len(slots)} runs is "
        f"above the model. The interval of their goodput is at most ± {100 * spread:.1f} %.",
    ]


def of_methods(name, *seeds):
    """The rows of each method of an experiment of research/ns3/sweep, all of whose fan-outs have ended."""
    found = {}
    for row in rows(name):
        assert int(row["seeds"]) in seeds and (row["unfinished"], row["failed_calls"]) == ("0", "0"), row
        found.setdefault(row["method"], []).append(row)
    return found


def lossless_ns3():
    """The policies of the product in ns-3."""
    found = of_methods("lossless_ns3_seeds", 10)
    workers = [int(row["workers"]) for row in found["unscheduled"]]
    timers = {"batches 1 ms": ("1ms", "20us"), "batches 50 us": ("50us", "200us")}
    for method, own in found.items():
        assert method == "unscheduled" or all(int(row["drops"]) == int(row["rtos"]) == int(row["other_drops"]) == 0 for row in own), method

    def line(label, method):
        return f"| {label} | " + " | ".join(interval(row, "mbps", ".1f" if method == "unscheduled" else ".0f") for row in found[method]) + " |"

    def model(method):
        granularity, jitter = timers[method]
        return [_PLAN.row("--capacity", "1gbit", "--rtt", "100us", "--buffer", "32000", "--packet_payload", 1448, "--frame", 1502, "--ack", 54,
                          "--sru", 10_000, "--timer_granularity", granularity, "--jitter", jitter, "--workers", count) for count in workers]

    mean = lambda method: [float(row["mbps_mean"]) for row in found[method]]  # noqa: E731
    off = {method: [ours / (row["goodput_bps"] / 1e6) - 1 for ours, row in zip(mean(method), model(method))] for method in timers}
    ratios = [after / before for policy in ("rolling", "grants") for before, after in zip(mean("batches 1 ms"), mean(policy))]
    at = dict(zip(workers, mean("batches 1 ms")))
    assert {row["n"] for method in timers for row in model(method)} == {3}
    assert all(abs(mbps - 80e-3 * n / (-(-n // 3) * 1e-3)) < 0.1 for n, mbps in at.items())
    return [f"| goodput in Mbit/s, N = | {' | '.join(map(str, workers))} |",
            line("`unscheduled`", "unscheduled"), line("`batches`, 1 ms and 20 µs", "batches 1 ms"),
            f"| their model | {cells([row['goodput_bps'] / 1e6 for row in model('batches 1 ms')])} |",
            line("`batches`, 50 µs and 200 µs", "batches 50 us"),
            f"| their model | {cells([row['goodput_bps'] / 1e6 for row in model('batches 50 us')])} |",
            line("`rolling`", "rolling"), line("`grants`", "grants"),
            f"goodput is {-100 * max(off['batches 1 ms']):.1f} to {-100 * min(off['batches 1 ms']):.1f} % below the model",
            f"With ticks of 50 µs it is {100 * min(off['batches 50 us']):.1f} to {100 * max(off['batches 50 us']):.1f} % above the model",
            f"The tooth from N = 15 to 16 is {percent(at[16] / at[15] - 1)}",
            f"`rolling` and `grants` carry {min(ratios):.1f} to {max(ratios):.1f} times as much"]


def random_ns3():
    """Random timeouts in ns-3."""
    found = of_methods("fine_grained_random_ns3_seeds", 5, 10)
    workers = [int(row["workers"]) for row in found["RTO_min 1 ms"]]
    line = lambda label, method: f"| {label} | " + " | ".join(interval(row, "mbps") for row in found[method]) + " |"  # noqa: E731
    assert all(int(row["drops"]) == int(row["rtos"]) == 0 for row in found["grants"])
    fixed, random = ([float(row["mbps_mean"]) for row in found[method]] for method in ("RTO_min 1 ms", "random RTO_min 1 ms"))
    ratios = dict(zip(workers, (after / before for before, after in zip(fixed, random))))
    for before, after in zip(found["RTO_min 1 ms"], found["random RTO_min 1 ms"]):
        apart = float(after["mbps_mean"]) - float(before["mbps_mean"]) > float(after["mbps_half_width"]) + float(before["mbps_half_width"])
        assert apart == (int(before["workers"]) >= 128), before
    assert [abs(after - before) > float(one["mbps_half_width"]) + float(two["mbps_half_width"]) for before, after, one, two in
            zip(fixed, random, found["RTO_min 1 ms"], found["random RTO_min 1 ms"])][:3] == [False, True, False]
    last, slow = found["random RTO_min 1 ms"][-1], found["RTO_min 1 ms"][-1]
    return [f"| goodput in Mbit/s, N = | {' | '.join(map(str, workers))} |", line("fixed timeouts", "RTO_min 1 ms"),
            line("random timeouts", "random RTO_min 1 ms"), line("`grants`", "grants"),
            f"{ratios[128]:.1f}, {ratios[256]:.1f}, {ratios[512]:.0f}, {ratios[1024]:.0f} and {ratios[2048]:.0f} times as much at N = 128, 256, "
            "512, 1024 and 2048.",
            f"with 32 servers random timeouts cost {share(1 - random[1] / fixed[1])}.",
            f"At N = 2048 the slowest of five blocks takes {float(slow['p99_ms_mean']) / 1e3:.0f} s with fixed timeouts and "
            f"{float(last['p99_ms_mean']):.0f} ms with random ones.",
            f"at N = 2048 a block of 8192 packets has {int(last['drops']) / int(last['fan_outs']):.0f} drops and "
            f"{int(last['rtos']) / int(last['fan_outs']):.0f} timeouts.",
            f"| Fine-grained, random timeouts | thousands of nodes | ns-3: {random[-1]:.0f} of 10000 Mbit/s with 2048 |"]


def storage_seeds():
    def line(label, printed, tcp, name):
        row, = rows("storage_table3_seeds", tcp=tcp)
        return (f"| {label} | {printed} | {interval(row, name)} | {float(row[f'{name}_min']):.0f} to {float(row[f'{name}_max']):.0f} |")

    return [line(f"{tcp}, {what}", printed, tcp, name)
            for tcp, numbers in (("NewReno", (84, 442, 362)), ("Reno", (49, 589, 464)), ("NewReno, 1 duplicate ACK", (89, 349, 313)))
            for (what, name), printed in zip((("blocks", "blocks"), ("timeouts", "timeouts"),
                                              ("full window losses, at most", "no_duplicate_ack")), numbers)]


def understanding_seeds():
    own, shared = rows("understanding_seeds"), rows("understanding_hosts_seeds")
    blocks = ("32 KB", "64 KB", "128 KB", "256 KB", "512 KB")
    buffers = ("64 KB of buffer", "64 KB", "256 KB of buffer", "512 KB of buffer")
    few = (10, 14, 16, 18, 20, 24, 28, 32, 48, 64)
    of = lambda found, curve: [row for row in found if row["curve"] == curve]  # noqa: E731
    line = lambda label, texts: f"| {label} | {' | '.join(texts)} |"  # noqa: E731
    default = lambda found, name, form, factor: [  # noqa: E731
        interval(row, name, form, factor) for row in of(found, "64 KB") if int(row["workers"]) in few]
    dash = lambda number: "-" if number is None else str(number)  # noqa: E731
    waits = lambda found, curves: [  # noqa: E731
        dash(first(of(found, curve), "blocks_with_timeouts_mean", lambda part: part >= 0.5)) for curve in curves]
    below = lambda found, curves: [dash(first(of(found, curve), "mbps_mean", lambda mbps: mbps < HALF)) for curve in curves]  # noqa: E731
    least = lambda found, curves: [dash(last(of(found, curve), "mbps_mean", lambda mbps: mbps >= HALF)) for curve in curves]  # noqa: E731
    lines = [line("five seeds, N =", map(str, few))]
    for label, found in (("a host each", own), ("three hosts", shared)):
        lines += [line(f"no duplicate ACK (FLT), % of the timeouts, {label}", default(found, "full_loss_share", ".0f", 100)),
                  line(f"blocks that wait, %, {label}", default(found, "blocks_with_timeouts", ".0f", 100)),
                  line(f"goodput, Mbit/s, {label}", default(found, "mbps", ".0f", 1))]
    for curves in (blocks, buffers):
        for label, found in (("five seeds", own), ("five seeds, three hosts", shared)):
            lines += [line(f"{label}: half of the blocks wait first at N =", waits(found, curves)),
                      line(f"{label}: goodput is below half first at N =", below(found, curves)),
                      line(f"{label}: goodput is at least half last at N =", least(found, curves))]
    curves = ("64 KB", "packets of 750 bytes", "256 KB of buffer")
    lines += [line("half of the blocks wait first at N =, a host each", waits(own, curves)),
              line("half of the blocks wait first at N =, three hosts", waits(shared, curves))]
    part = lambda found, low, high, name="full_loss_share": [  # noqa: E731
        100 * float(row[f"{name}_mean"]) for row in of(found, "64 KB") if low <= int(row["workers"]) <= high]
    at = {n: part(shared, n, n, "blocks_with_timeouts")[0] for n in (10, 14)}
    lines.append(f"With three hosts, FLT are {min(part(shared, 14, 28)):.0f} to {max(part(shared, 14, 28)):.0f} % of the timeouts from N = 14 "
                 f"to 28, near the paper's > 90 % after 15 flows. With a host each they are {min(part(own, 14, 28)):.0f} to "
                 f"{max(part(own, 14, 28)):.0f} %. The collapse is also sharper: {at[10]:.0f} % of the blocks wait at N = 10, and "
                 f"{at[14]:.0f} % at N = 14.")
    largest, second = ([row for row in of(own, curve) if row["workers"] == "32"][0] for curve in ("512 KB", "256 KB"))
    assert float(largest["mbps_mean"]) == max(float(row["mbps_mean"]) for row in own if row["curve"] in blocks and row["workers"] == "32")
    lines.append(f"within the intervals: {interval(largest, 'mbps')} against {interval(second, 'mbps')} Mbit/s.")
    kinds = [row for row in rows("understanding_fig3") if 16 <= int(row["workers"]) <= 64]
    full = [100 * float(row["full_loss"]) / sum(float(row[key]) for key in ("full_loss", "lack_of_acks", "three_or_more")) for row in kinds]
    lines.append(f"| Understanding, Fig 3 | > 90 % FLT after 15 flows | {min(full):.0f} to {max(full):.0f} % from N = 16 to 64; three hosts: "
                 f"{min(part(shared, 14, 32)):.0f} to {max(part(shared, 14, 32)):.0f} % from N = 14 to 32 |")
    before, small, twice = waits(own, curves)
    lines.append(f"| Understanding, V.A.3 | half the MTU has almost the effect of twice the buffer | {before} workers become {small}, and "
                 f"{twice} with twice the buffer |")
    return lines


def settings():
    """What the runs are given."""
    network = (_ROOT / "research/ns2/incast.tcl").read_text()
    unlimited, = re.findall(r"max_window (\d+)", network)
    assert "max_window" not in papers.UNDERSTANDING
    return [f"256 KB ({papers.STORAGE['sru']} bytes) over a persistent connection.",
            f"We take the {papers.STORAGE['buffer_packets']} packets of Fig 11 and Table 3, and ns-2's default packets (1000 bytes) and "
            f"windows ({papers.STORAGE['max_window']} packets).",
            f"Our windows have no limit ({unlimited} packets),"]


def not_reproduced():
    """The table at the end of the page."""
    block = lambda workers: value("lossless_fig7", "unscheduled_mbps", workers=workers)  # noqa: E731
    buffer = lambda workers, kb: value(  # noqa: E731
        "lossless_fig8", "unscheduled_mbps", workers=workers, buffer_bytes=kb * 1000)
    lasts = lambda ours, printed, form: (  # noqa: E731
        f"a block of {8 / ours:{form}} s instead of {8 / printed:{form}} s; not known")
    kept = [buffer(25, kb) for kb in (88, 92, 96)]
    table3 = {row["tcp"]: row for row in rows("storage_table3")}
    nothing = listed(float(table3[tcp]["no_duplicate_ack"]) for tcp in ("Reno", "NewReno", "NewReno, 1 duplicate ACK"))
    newreno, dup1 = table3["NewReno"], table3["NewReno, 1 duplicate ACK"]
    ten = {row["tcp"]: row for row in rows("storage_table3_seeds")}
    inside = [(tcp, name) for tcp, printed in (("NewReno", (84, 442)), ("Reno", (49, 589)), ("NewReno, 1 duplicate ACK", (89, 349)))
              for name, number in zip(("blocks", "timeouts"), printed)
              if abs(number - float(ten[tcp][f"{name}_mean"])) <= float(ten[tcp][f"{name}_half_width"])]
    assert inside == [("NewReno", "blocks")], inside
    assert float(newreno["timeouts"]) == float(ten["NewReno"]["timeouts_max"])
    assert float(dup1["timeouts"]) == float(ten["NewReno, 1 duplicate ACK"]["timeouts_min"])
    fast, slow = ({int(row["workers"]): float(row["goodput_mbps"]) for row in rows("storage_fig12", curve=f"NewReno, {rto}")}
                  for rto in ("200 µs", "200 ms"))
    faster = [fast[n] / slow[n] for n in (8, 12, 16, 24, 32)]
    fig9 = {curve: {int(row["workers"]): float(row["goodput_mbps"]) for row in rows("storage_fig9", curve=curve)}
            for curve in ("NewReno", "SACK", "NewReno, limited transmit", "NewReno, 1 duplicate ACK")}
    best = lambda curve: max(fig9[curve][n] / fig9["NewReno"][n] for n in fig9[curve])  # noqa: E731
    small, large = (value("storage_fig7", "goodput_mbps", curve=curve, workers=64) for curve in ("10 KB", "1000 KB"))
    late = value("storage_text", "goodput_mbps", curve="delayed ACKs of 40 ms, 264 packets", workers=5)
    rto = lambda curve, workers: value("fine_grained_servers", "goodput_mbps", curve=curve, workers=workers)  # noqa: E731
    less = lambda curve, workers: (value("fine_grained_fig14", "goodput_mbps", curve="no delayed ACK", workers=workers)  # noqa: E731
                                   - value("fine_grained_fig14", "goodput_mbps", curve=curve, workers=workers))
    long = [less("40 ms", workers) for workers in (10, 12, 14, 16)]
    onsets = [first(rows("understanding_fig7", curve=f"{kb} KB"), "simulated_block_timeouts", lambda part: part >= 0.5)
              for kb in (64, 128, 256, 512)]
    steps = [after / before for before, after in zip(onsets, onsets[1:])]
    of_100 = [float(row["unscheduled_mbps"]) for row in rows("lossless_fig8", workers=100)]
    falls = max(1 - after / before for before, after in zip(of_100, of_100[1:]))
    return [
        f"| Lossless, block, N = 10 | > 900 Mbit/s | {block(10):.1f} | one timeout; a packet or two decide |",
        f"| Lossless, block, N = 60 | 10 Mbit/s | {block(60):.1f} | {lasts(block(60), 10, '.1f')} |",
        f"| Lossless, block, N = 130 | 1.3 Mbit/s | {block(130):.2f} | {lasts(block(130), 1.3, '.1f')} |",
        f"| Lossless, N = 25, 88 to 96 KB | <= 39 Mbit/s | {min(kept):.0f} to {max(kept):.0f} | as for N = 10 |",
        f"| Lossless, N = 100, 8 KB | 0.3 Mbit/s | {buffer(100, 8):.2f} | {lasts(buffer(100, 8), 0.3, '.0f')} |",
        f"| Lossless, N = 100, 128 KB | 29 Mbit/s | {buffer(100, 128):.1f} | {lasts(buffer(100, 128), 29, '.2f')} |",
        f"| Storage, Table 3, full window losses | 464, 362, 313 | at most {nothing} |",
        "| Storage, Table 3, timeouts of NewReno of no such kind | 78 | "
        f"{int(newreno['timeouts']) - int(newreno['no_duplicate_ack'])} had feedback |",
        f"| Storage, Table 3, NewReno | 442 timeouts | {interval(ten['NewReno'], 'timeouts')} (ten seeds) | not known |",
        "| Storage, Table 3, Reno | 49 blocks, 589 timeouts | "
        f"{interval(ten['Reno'], 'blocks')}, {interval(ten['Reno'], 'timeouts')} (ten seeds) | not known |",
        "| Storage, Table 3, 1 duplicate ACK | 89 blocks, 349 timeouts | "
        f"{interval(ten['NewReno, 1 duplicate ACK'], 'blocks')}, {interval(ten['NewReno, 1 duplicate ACK'], 'timeouts')} (ten seeds) | not "
        "known |",
        "| Storage, Fig 12, NewReno, 8 to 32 servers | an order of magnitude | "
        f"{min(faster):.1f} to {max(faster):.1f} times | not known |",
        f"| Storage, Fig 12, NewReno, 64 servers | −30 % | {percent(fast[64] / max(fast.values()) - 1)} | not known |",
        "| Storage, Fig 10 | limited transmit and 1 duplicate ACK do not help | up to "
        f"{best('NewReno, limited transmit'):.1f} and {best('NewReno, 1 duplicate ACK'):.1f} times | not known |",
        "| Storage, Fig 9 | SACK is worse than NewReno | "
        f"{fig9['SACK'][6] / fig9['NewReno'][6]:.1f} and {fig9['SACK'][8] / fig9['NewReno'][8]:.1f} times at N = 6 and 8 | not known |",
        f"| Storage, Fig 7 | 1000 KB two orders of magnitude above 10 KB | a factor of {large / small:.0f} | not known |",
        "| Storage, 1024 KB, 64 servers | about 65 % of the link | "
        f"{value('storage_text', 'goodput_mbps', curve='1024 packets', workers=64):.0f} Mbit/s | not known |",
        f"| Storage, delayed ACKs, 5 servers | 500 Mbit/s | {late:.0f} | real hosts there; their rule for delayed ACKs is not known |",
        f"| Fine-grained, 200 ms | 1 to 10 % of the link | {share(rto('200 ms', 47) / LINK, '.1f')} at N = 47 |",
        "| Fine-grained, microseconds, 47 servers | full throughput | "
        f"{rto('200 µs', 47):.0f} of {rto('200 µs', 1):.0f} Mbit/s | real hosts there |",
        f"| Fine-grained, Fig 14, 200 µs | 15 to 30 Mbit/s less | {less('200 µs', 14):.1f} less at N = 14 | real hosts there |",
        f"| Fine-grained, Fig 14, 40 ms | 100 to 200 Mbit/s less | {min(long):.1f} to {max(long):.1f} less | real hosts there |",
        f"| Understanding, Fig 7 | twice the buffer, twice the flows | {min(steps):.1f} to {max(steps):.1f} times | |",
        f"| Lossless, N = 100, 8 to 128 KB | grows monotonically | falls by up to {100 * falls:.1f} % in some steps | not known |",
    ]


def normalized(text):
    return " ".join(text.split())


# Numbers of figures, tables, equations and programs, code and links.
_NAMES = (r"(?m)^    .*$", r"`[^`]*`", r"\]\([^)]*\)", r"Figs? \d+( \([a-z]\))?((, \d+)* (to|and) (\d+|\([a-z]\)))?", r"Table \d",
          r"\(\d+\)(, \(\d+\))*", r"ns-[23]( [23][.]\d+)?", r"propositions 1 and 2", r"(MASCOTS|FAST|SIGCOMM|INFOCOM) 20\d\d",
          r"from 6[.]2 on")

# The other numbers of each section, in their order: settings of the runs, printed numbers, heads of tables.
_OTHERS = {
    "the head": """
        20 45 1 95 5 20 2 20 20 4 5 20 100 100 1 1
        """,
    "lossless scheduling": """
        1 1 0.1 32 32000 1000 5 20 1 10 7 3 5 10 1 20 50 200 20 20 20 1 1 5 600 5 1 5 1 2 4 5 5 4 10 1000 300 20 41 1
        """,
    "storage": """
        200 5 16 200 1 20 100 16 20 1 2 3 16 20 84 1 1
        """,
    "fine-grained timeouts": """
        1 32 1 0.1 20 10 47 200 0.2 1 5 10 50 200 10 20 200 10 64 128 256 10 1 2048 10 2 16 64 16 32 25 32 4 10 20 100 200 10 1 200
        """,
    "understanding": """
        1 128 0.1 1.5 64 10 0.1 128 32 64 128 256 512 512 18 64 32 256 32 64 64 128 256 512 64 128 128 750
        256 20 30 7 24 64 200 200 20 24 28 40 64 1 2 0 1 0 0.98 2 1 10 20 1 1 1.7 2 2 1 2 4
        1 64 100 15 4 20 100 4 8 12 16 20 24 32 40 48 64 4 10
        """,
    "not reproduced": """
        1 2 61 2 41 0 0 34 61 2 7 2 5 2 87 100 15 21 23 16 17 18 0.1
        """,
}


SECTIONS = (limits, settings, lossless, lossless_seeds, lossless_ns3, storage, storage_seeds, fine_grained, random_ns3, understanding,
            understanding_seeds, not_reproduced)


class PageTest(unittest.TestCase):
    def test_every_number(self):
        page = normalized(re.sub(_NAMES[0], "", _PAGE.read_text()))
        for section in SECTIONS:
            for line in section():
                line = normalized(line)
                with self.subTest(section=section.__name__):
                    self.assertTrue(line in page, f"the page does not have: {line}")
                page = page.replace(line, "·", 1)
        for name in _NAMES[1:]:
            page = re.sub(name, "", page)
        sections = re.split(r" ## ", page)
        self.assertEqual(len(sections), len(_OTHERS))
        for text, (name, numbers) in zip(sections, _OTHERS.items()):
            with self.subTest(section=name):
                self.assertEqual(" ".join(re.findall(r"[0-9][0-9.]*[0-9]|[0-9]", text)), normalized(numbers))


class DataTest(unittest.TestCase):
    """The CSVs themselves."""

    def close(self, ours, theirs, row, relative=2e-6):
        self.assertLessEqual(abs(ours - float(theirs)), relative * abs(ours) + 6e-5, row)

    def test_recorded(self):
        # research/ns2/figures records what it has made.
        recorded = dict(reversed(line.split("  ")) for line in (_DATA / "SHA256SUMS").read_text().splitlines())
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _DATA.glob("*.csv")}
        changed = sorted(name for name in found.keys() | recorded.keys() if found.get(name) != recorded.get(name))
        self.assertFalse(changed, "not as recorded in SHA256SUMS")

    def test_the_page_shows_every_file_with_its_command(self):
        page = _PAGE.read_text()
        for path in sorted(_DATA.iterdir()):
            if path.suffix == ".svg":
                self.assertRegex(page, rf"\]\(papers/{path.name}\)\n\n`research/ns2/figures research/papers {path.stem}  # 20\d\d-\d\d-\d\d`\n")
            elif path.suffix == ".csv" and not path.with_suffix(".svg").exists():
                self.assertIn(path.name, page)

    def test_schedules_are_those_of_sluice_plan(self):
        for name in ("lossless_fig6", "lossless_fig7", "lossless_fig8", "lossless_fig9"):
            for row in rows(name):
                plan = _PLAN.lossless(int(row["workers"]), papers.FIXED_SRU if name == "lossless_fig6" else None,
                                      row["buffer_bytes"], f"{row['timer_granularity_ms']}ms")
                self.assertEqual((int(plan["wnd_max"]), int(plan["n"])), (int(row["wnd_max"]), int(row["n"])), row)
                if plan["n"]:
                    self.close(plan["goodput_bps"] / 1e6, row["model_mbps"], row, 5e-6)
                if "unscheduled_model_mbps" in row:
                    self.close(plan["collapse_goodput_bps"] / 1e6, row["unscheduled_model_mbps"], row, 5e-6)
                    self.close(plan["collapse_printed_goodput_bps"] / 1e6, row["unscheduled_printed_model_mbps"], row, 5e-6)

    def test_probabilities_are_those_of_sluice_plan(self):
        for name, flag, default in (("understanding_fig6", "sru", None), ("understanding_fig7", "buffer", None),
                                    ("understanding_fig8", "rto_min", None)):
            for row in rows(name):
                settings = {"sru": 65_536, "buffer": 131_072, "rto_min": "200ms"}
                number, unit = row["curve"].split()
                settings[flag] = int(number) * 1024 if unit == "KB" else f"{number}ms"
                flags = [part for key, one in settings.items() for part in (f"--{key}", one)]
                plan = _PLAN.row(*papers.UNDERSTANDING_PLAN, "--workers", row["workers"], *flags, "--window", row["window"],
                                 "--window_deviation", row["window_deviation"])
                # The windows in the file have six digits.
                self.close(plan["collapse_goodput_bps"] / 1e6, row["model_mbps"], row, 1e-3)
                self.close(plan["collapse_printed_goodput_bps"] / 1e6, row["printed_model_mbps"], row, 1e-3)

    def test_goodput_is_that_of_the_blocks(self):
        for name, column, sru in (("storage_fig6", "goodput_mbps", 262_144), ("storage_fig7", "goodput_mbps", None),
                                  ("storage_fig9", "goodput_mbps", 262_144), ("storage_fig12", "goodput_mbps", 262_144),
                                  ("understanding_fig6", "simulated_mbps", None), ("understanding_fig7", "simulated_mbps", 65_536),
                                  ("understanding_fig8", "simulated_mbps", 65_536)):
            for row in rows(name):
                kb = 1000 if name == "storage_fig7" else 1024
                size = sru or int(row["curve"].split()[0]) * kb
                self.close(int(row["blocks"]) * int(row["workers"]) * size * 8e-6 / 5, row[column], row, 5e-6)


if __name__ == "__main__":
    _PLAN = papers.Plan(sys.argv.pop(1))
    unittest.main(verbosity=2)
