"""The scenarios of bad-workers in which no worker is slow or lost: other requests, of the same method, of another class,
or with large errors, take more than their share of the link."""

import dataclasses

from bad_worker_scenarios import ALONE, BAD, MEGABYTE, OTHER, SMALL, Bound, Group, Scenario, Variant, busy, link_of_flags

_GO_WAYS = ("go", "direct")
_QUERY_WORKERS = 8
_QUERY_TIMEOUT_S = 30
_DEADLINES_S = (0.05, 0.15, 0.8, 2)  # of further queries
_LATE_INTERVAL_S = 0.4
# If queries are late, the next queries of the same reader are late, too. With more readers, fewer are.
_LATE_READERS = 4
_SCANS = {"neighbours": (4, 8), "neighbours-wide": (8, 16)}  # fan-outs at a time, and workers of each
_ONE_HISTORY = "of one method"
_INTERACTIVE_WEIGHT = 100  # if that of the streams is 1
_STREAM_WORKERS = 16
_STREAM_MESSAGES = 16
_STREAM_START_S = 3
_THINK_S = 0.01
_ERRORS_PER_S = 200
_ERROR_READERS = 20
_HUNG_FOR_S = 3  # after the end of the run; the servers wait for it when they end


def _query_link(flags):
    return link_of_flags(flags, workers=16, machines=8, rate_bps=10**8, buffer_bytes=48 * 1024)


def _queries(flags, told, **changes):
    query = Group(SMALL, tuple(range(_QUERY_WORKERS)), 1024, interval_s=flags.query_interval / 1e3, timeout_s=_QUERY_TIMEOUT_S,
                  fan_out=_ONE_HISTORY, unknown_sizes=not told)  # fmt: skip
    return dataclasses.replace(query, **changes)


def _scans(flags, told, readers, workers):
    # In the warm-up they would take many seconds at a low rate.
    return Group(OTHER, tuple(range(workers)), flags.large or MEGABYTE, readers=readers, fan_out=_ONE_HISTORY,
                 unknown_sizes=not told, warm_up=False)  # fmt: skip


def _neighbours(shape, told):
    def scenario(flags):
        variants = (
            Variant(ALONE, (_queries(flags, told),), budget_bytes=flags.budget),
            Variant(BAD, (_queries(flags, told), _scans(flags, told, *shape)), budget_bytes=flags.budget),
        )
        bounds = (
            Bound("p99_over_goal", at_most=1),
            Bound("port_busy_share", at_least=0.9),
            Bound("lost", at_most=0),
        )
        ways = ("library",) if told else ("library", "proxy", *_GO_WAYS)
        shown = (f"{ALONE}_p99_ms", f"{BAD}_p99_ms", "other_share_of_port")
        return Scenario(_query_link(flags), variants, bounds, ways=ways, shown=shown)

    return scenario


def _deadlines(told):
    def scenario(flags):
        timeouts_s = {SMALL: _QUERY_TIMEOUT_S, **{f"within {limit_s:g} s": limit_s for limit_s in _DEADLINES_S}}
        # With the same interval, all queries would be due at the same time.
        queries = [
            _queries(flags, told, name=name, timeout_s=timeout_s, readers=_LATE_READERS,
                     interval_s=_LATE_READERS * _LATE_INTERVAL_S * (1 + 0.07 * i))
            for i, (name, timeout_s) in enumerate(timeouts_s.items())
        ]  # fmt: skip
        scans = _scans(flags, told, *_SCANS["neighbours"])
        variants = (
            Variant(ALONE, tuple(queries), budget_bytes=flags.budget),
            Variant(BAD, (*queries, scans), budget_bytes=flags.budget),
        )
        ways = ("library",) if told else ("library", "proxy", *_GO_WAYS)
        shown = tuple(f"lost of {query.name}" for query in queries)
        return Scenario(_query_link(flags), variants, (Bound("lost", at_most=0),), ways=ways, shown=shown)

    return scenario


def _sizes(flags):
    """Scans whose sizes are predicted, beside scans whose sizes are told."""
    shape = _SCANS["neighbours"]
    predicted = dataclasses.replace(_scans(flags, False, *shape), name=SMALL)
    variants = (Variant(BAD, (predicted, _scans(flags, True, *shape)), budget_bytes=flags.budget),)
    return Scenario(_query_link(flags), variants, (Bound("goodput_over_other", at_least=0.8, at_most=1.25),), ways=("library",))


def _streams(flags):
    """A class that always has more to receive than the link takes, beside streams of a class of a low weight."""
    link = link_of_flags(flags, workers=8 + _STREAM_WORKERS, machines=8, rate_bps=10**8, buffer_bytes=512 * 1024)
    small = Group(SMALL, tuple(range(8)), flags.response or 10240, readers=16, traffic_class=SMALL)
    readers = max(1, round(flags.streams / _STREAM_WORKERS))
    other = Group(OTHER, tuple(range(8, 8 + _STREAM_WORKERS)), MEGABYTE // _STREAM_MESSAGES, readers=readers,
                  messages=_STREAM_MESSAGES, start_s=_STREAM_START_S, traffic_class=OTHER, warm_up=False)  # fmt: skip
    classes = ((SMALL, _INTERACTIVE_WEIGHT), (OTHER, 1))
    variants = (
        Variant(ALONE, (small,), budget_bytes=flags.budget, classes=classes),
        Variant(BAD, (small, other), budget_bytes=flags.budget, classes=classes),
    )
    bounds = (Bound("least_second_over_share", at_least=0.9), Bound("goodput_after_start_over_share", at_least=0.97))
    return Scenario(link, variants, bounds, seconds=14, ways=("library",))


def _errors(details_bytes):
    def scenario(flags):
        link = link_of_flags(flags, workers=16)
        small = dataclasses.replace(busy(flags, range(1, link.workers)), readers=8, think_s=_THINK_S)
        other = Group(OTHER, (0,), 100, readers=_ERROR_READERS, interval_s=_ERROR_READERS / _ERRORS_PER_S,
                      error_details_bytes=details_bytes, warm_up=False)  # fmt: skip
        variants = (
            Variant(ALONE, (small,), budget_bytes=flags.budget),
            Variant(BAD, (small, other), budget_bytes=flags.budget),
        )
        shown = (f"{ALONE}_goodput_bps", f"{BAD}_goodput_bps", "errors_per_s")
        return Scenario(link, variants, (Bound("goodput_over_rest", at_least=0.95),), shown=shown)

    return scenario


def _hung(calls):
    def scenario(flags):
        link = link_of_flags(flags, workers=8 + calls, machines=8)
        small = Group(SMALL, tuple(range(8)), flags.response or 10240)
        seconds = (flags.seconds or Scenario.seconds) + _HUNG_FOR_S
        other = Group(OTHER, tuple(range(8, 8 + calls)), 10240, think_s=seconds, warm_up=False)
        variants = (
            Variant(ALONE, (small,), budget_bytes=flags.budget),
            Variant(BAD, (small, other), budget_bytes=flags.budget),
        )
        # On a busy machine the median time is steadier than the goodput.
        bounds = (Bound(f"goodput_over_{ALONE}", at_least=0.95), Bound(f"p50_over_{ALONE}", at_most=1.05))
        shown = (f"{ALONE}_goodput_bps", f"{BAD}_goodput_bps", f"{ALONE}_p50_ms", f"{BAD}_p50_ms")
        return Scenario(link, variants, bounds, shown=shown)

    return scenario


SCENARIOS = {
    **{name: _neighbours(shape, told=False) for name, shape in _SCANS.items()},
    **{f"{name}-told": _neighbours(shape, told=True) for name, shape in _SCANS.items()},
    "deadlines": _deadlines(told=False),
    "deadlines-told": _deadlines(told=True),
    "sizes": _sizes,
    "streams": _streams,
    "errors": _errors(6000),
    "large-errors": _errors(30000),
    "hung": _hung(1),
    "hung-many": _hung(40),
}
