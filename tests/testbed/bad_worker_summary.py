"""Figures of a run of bad-workers: its groups, its budget, and its ratios to the runs of its controls."""

import math
import statistics

from bad_worker_scenarios import ALONE, BAD, HEALTHY, OTHER, SMALL
from scenario import wire_bytes
from units import format_mbps

# The goal for the 99th percentile of queries beside scans: a multiple of the queries' own, and a time.
GOAL_RATIO, GOAL_MS = 2.5, 2
_NO_BUDGET = 2**62  # the policy unscheduled reports the largest number
_SETTLED = 0.2  # the share of the measured part after which memory counts


def group_figures(report, seconds):
    """Returns the figures of one GroupReport. If the end cut off a fan-out, its time until then counts if it exceeds
    the median of the others: a stall must show even if it lasts."""
    whole = [record for record in report["fan_outs"] if record["outcome"] == "OK"]
    times_ms = sorted(1e3 * (record["ended_s"] - record["due_s"]) for record in whole)
    cut_ms = [1e3 * (seconds - record["due_s"]) for record in report["fan_outs"] if record["outcome"] == "CUT"]
    times_ms += [time_ms for time_ms in cut_ms if time_ms > percentile(times_ms, 0.5)]
    merged = sum(record["bytes"] for record in report["fan_outs"] if record["outcome"] != "FAILED")
    ends_s = sorted(record["ended_s"] for record in whole)
    return {
        "goodput_bps": round(8 * merged / seconds),
        "fan_outs": len(whole),
        "errors": sum(record["outcome"] == "FAILED" for record in report["fan_outs"]),
        "error_sample": report["error_sample"],
        "p50_ms": round(percentile(times_ms, 0.5), 2),
        "p99_ms": round(percentile(times_ms, 0.99), 2),
        "longest_gap_ms": round(1e3 * max(later - earlier for earlier, later in zip([0, *ends_s], [*ends_s, seconds])), 1),
        "goodput_by_second_bps": [
            round(8 * sum(record["bytes"] for record in whole if int(record["ended_s"]) == second))
            for second in range(math.ceil(seconds))
        ],
    }


def percentile(values, share):
    """Returns the smallest value that is not below a share of all values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0


def budget_figures(samples):
    """Samples are triples: seconds, bytes of the budget, and bytes charged to it. Without a budget the figures are
    0."""
    samples = [sample for sample in samples if 0 < sample[1] < _NO_BUDGET]
    changes = [samples[0][:2]] if samples else []
    for time_s, budget_bytes, *_ in samples:
        if budget_bytes != changes[-1][1]:
            changes.append((time_s, budget_bytes))
    held = [in_flight / budget for _, budget, in_flight in samples]
    return {
        "budget_bytes": [(round(time_s, 2), round(budget_bytes)) for time_s, budget_bytes in changes],
        "budget_least_bytes": round(min(budget for _, budget, _ in samples)) if samples else 0,
        "budget_median_bytes": round(statistics.median(budget for _, budget, _ in samples)) if samples else 0,
        "budget_end_bytes": round(samples[-1][1]) if samples else 0,
        "budget_held_share": round(statistics.fmean(held), 3) if held else 0,
    }


def memory_figures(samples):
    """Samples are pairs: seconds and resident bytes. The growth is the slope of the regression line."""
    settled = samples[int(_SETTLED * len(samples)) :]
    growth = statistics.linear_regression(*zip(*settled)).slope if len(settled) > 1 else 0
    return {
        "resident_mb": round(settled[-1][1] / 1e6, 1) if settled else 0,
        "resident_growth_mb_per_s": round(growth / 1e6, 2),
    }


def figures_of(runs, scenario):
    """Returns the figures of one repetition, which has a run of each variant: the bad workers compared with the
    controls."""
    figures = {
        f"{variant}_{name}": run["groups"][SMALL][name]
        for variant, run in runs.items()
        for name in ("goodput_bps", "p50_ms", "p99_ms")
    }
    if BAD not in runs:
        return figures
    bad = runs[BAD]
    small = bad["groups"][SMALL]
    figures |= {
        "longest_gap_ms": small["longest_gap_ms"],
        "resident_growth_mb_per_s": bad["resident_growth_mb_per_s"],
        "total_goodput_bps": _total_goodput_bps(bad),
        "inferred_over_kernel": _over(bad["inferred_rto_waits"], bad["tcp_timeouts"]),
    }
    if OTHER in bad["groups"]:
        other = bad["groups"][OTHER]
        figures["goodput_over_other"] = _over(small["goodput_bps"], other["goodput_bps"])
        figures["other_share_of_port"] = _over(other["goodput_bps"], scenario.link.rate_bps)
        figures["port_busy_share"] = bad["port_busy_share"]
    if ALONE in runs:
        figures |= _harm_figures(runs[ALONE], bad, scenario)
    for control in (HEALTHY, ALONE):
        if control in runs:
            controls = runs[control]["groups"][SMALL]
            figures[f"goodput_over_{control}"] = _over(small["goodput_bps"], controls["goodput_bps"])
            figures[f"p50_over_{control}"] = _over(small["p50_ms"], controls["p50_ms"])
            figures[f"p99_over_{control}"] = _over(small["p99_ms"], controls["p99_ms"])
            figures[f"total_goodput_over_{control}"] = _over(_total_goodput_bps(bad), _total_goodput_bps(runs[control]))
            figures[f"budget_over_{control}"] = _over(bad["budget_end_bytes"], runs[control]["budget_end_bytes"])
    return figures


def _harm_figures(alone, bad, scenario):
    small, control = bad["groups"][SMALL], alone["groups"][SMALL]
    goal_ms = GOAL_RATIO * control["p99_ms"] + GOAL_MS
    lost = {
        name: group["errors"] - alone["groups"][name]["errors"]
        for name, group in bad["groups"].items()
        if name in alone["groups"]
    }
    figures = {
        "p99_over_goal": _over(small["p99_ms"], goal_ms),
        "lost": sum(lost.values()),
        **({f"lost of {name}": count for name, count in lost.items()} if len(lost) > 1 else {}),
    }
    (variant,) = (variant for variant in scenario.variants if variant.name == BAD)
    (other,) = (group for group in variant.groups if group.name == OTHER)
    if other.error_details_bytes:
        # The share of the port's time that the errors themselves do not take.
        taken_bps = 8 * bad["groups"][OTHER]["errors"] * wire_bytes(other.error_details_bytes) / bad["seconds"]
        rest_bps = control["goodput_bps"] * (1 - taken_bps / scenario.link.rate_bps)
        figures["errors_per_s"] = bad["groups"][OTHER]["errors"] / bad["seconds"]
        figures["goodput_over_rest"] = _over(small["goodput_bps"], rest_bps)
    if variant.classes:
        weights = dict(variant.classes)
        share_bps = control["goodput_bps"] * weights[SMALL] / sum(weights.values())
        # The other group begins within the first second, and the end of the run cuts off the last one.
        seconds_bps = small["goodput_by_second_bps"][int(other.start_s) + 1 : -1] or [0]
        figures["by_second_over_share"] = [_over(bps, share_bps) for bps in small["goodput_by_second_bps"]]
        figures["least_second_over_share"] = _over(min(seconds_bps), share_bps)
        figures["goodput_after_start_over_share"] = _over(statistics.fmean(seconds_bps), share_bps)
    return figures


def _total_goodput_bps(run):
    return sum(group["goodput_bps"] for group in run["groups"].values())


def _over(value, control):
    return round(value / control, 3) if control else 0


def verdicts(bounds, repetitions):
    """Returns the median of each figure over repetitions, and whether it is within its bound. If a variant did not
    run, its figures are missing in both."""
    medians = {
        name: statistics.median(figures[name] for figures in repetitions)
        for name, figure in repetitions[0].items()
        if not isinstance(figure, list)
    }
    demands = [
        {
            "figure": bound.figure,
            "bound": bound.text,
            "value": medians[bound.figure],
            "met": bound.met(medians[bound.figure]),
        }
        for bound in bounds
        if bound.figure in medians
    ]
    return medians, demands


def run_line(run):
    """Returns a readable line about a run."""
    small = run["groups"][SMALL]
    words = [
        f"{format_mbps(small['goodput_bps'])}, p50 {small['p50_ms']:.1f} ms, p99 {small['p99_ms']:.1f} ms, "
        f"gap {small['longest_gap_ms']:.0f} ms"
    ]
    words += [
        f"{name} {format_mbps(group['goodput_bps'])}, p50 {group['p50_ms']:.0f} ms"
        for name, group in run["groups"].items()
        if name != SMALL
    ]
    if "neighbour_goodput_bps" in run:
        words.append(f"neighbour {format_mbps(run['neighbour_goodput_bps'])}")
    words += [f"{group['errors']} errors of {name}" for name, group in run["groups"].items() if group["errors"]]
    words.append(f"budget {run['budget_end_bytes']} B, {run['budget_held_share']:.0%} held")
    words.append(f"{run['tcp_timeouts']} TCP timeouts, {run['inferred_rto_waits']} inferred, {run['switch_drops']} drops")
    words.append(f"{run['resident_mb']:.0f} MB")
    words.append(f"processors {run['machine_cpu_busy_share']:.0%}")
    return "    " + "; ".join(words)


def verdict_line(result, shown=()):
    demands = [
        f"{demand['figure']} {demand['value']:g} ({demand['bound']}{'' if demand['met'] else ': MISSED'})"
        for demand in result["demands"]
    ]
    demands += [f"{name} {result['medians'][name]:g}" for name in shown if name in result["medians"]]
    title = " ".join([result["scenario"], result["way"], result["transport"], result["policy"], result["build"]])
    by_second = [
        f"; by second {', '.join(f'{share:.2f}' for share in figures['by_second_over_share'])}"
        for figures in result["figures"]
        if "by_second_over_share" in figures
    ]
    return f"{title}, {format_mbps(result['rate_bps'])}: {', '.join(demands) or 'not compared'}{''.join(by_second)}"
