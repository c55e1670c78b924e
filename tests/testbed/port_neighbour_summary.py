"""The table of the neighbours in the port: medians over repetitions, with the least and the most."""

import statistics

from bad_worker_scenarios import SMALL


def _budget_kb(name):
    return lambda run: run[name] / 1024 or None


_COLUMNS = {
    "Mbit/s": lambda run: run["groups"][SMALL]["goodput_bps"] / 1e6,
    "p50 ms": lambda run: run["groups"][SMALL]["p50_ms"],
    "p99 ms": lambda run: run["groups"][SMALL]["p99_ms"],
    "timeouts": lambda run: run["tcp_timeouts"],
    "inferred": lambda run: run["inferred_rto_waits"],
    "drops": lambda run: run["switch_drops"],
    "host drops": lambda run: run["receive_queue_drops"],
    "neighbour Mbit/s": lambda run: run["neighbour_goodput_bps"] / 1e6 if "neighbour_goodput_bps" in run else None,
    "back-offs": lambda run: run["back_offs"],
    "budget least KB": _budget_kb("budget_least_bytes"),
    "median KB": _budget_kb("budget_median_bytes"),
    "end KB": _budget_kb("budget_end_bytes"),
    "CPUs busy %": lambda run: 100 * run["machine_cpu_busy_share"],
}


def table(results, neighbours):
    """Returns lines of a table in Markdown. The runs with the same neighbour follow each other."""
    builds = len({result["build"] for result in results}) > 1
    ways = len({result["way"] for result in results}) > 1
    rates = len({result["rate_bps"] for result in results}) > 1
    named = {
        "neighbour": lambda result, name: name,
        **({"rate Mbit/s": lambda result, name: f"{result['rate_bps'] / 1e6:g}"} if rates else {}),
        **({"way": lambda result, name: result["way"]} if ways else {}),
        "policy": lambda result, name: result["policy"],
        **({"build": lambda result, name: result["build"]} if builds else {}),
    }
    rows = [[*named, *_COLUMNS], ["---"] * len(named) + ["---:"] * len(_COLUMNS)]
    for rate_bps in dict.fromkeys(result["rate_bps"] for result in results):
        for name in neighbours:
            for result in results:
                if result["rate_bps"] == rate_bps:
                    runs = [repetition[name] for repetition in result["repetitions"]]
                    figures = [_figure([column(run) for run in runs]) for column in _COLUMNS.values()]
                    rows.append([cell(result, name) for cell in named.values()] + figures)
    return ["| " + " | ".join(row) + " |" for row in rows]


def _figure(values):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    median = _rounded(statistics.median(values))
    least, most = _rounded(min(values)), _rounded(max(values))
    return median if least == most else f"{median} ({least} to {most})"


def _rounded(value):
    return f"{value:.1f}" if value < 100 and value != int(value) else f"{value:.0f}"
