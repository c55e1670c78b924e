"""Panels of a Grafana dashboard with a common style. For Grafana 9 and 10."""

WIDTH = 24  # columns of Grafana's grid
_GREY = "#8e8e8e"

# The same quantity has the same colour in every panel. The first word of a legend selects the colour.
_COLOURS = {
    # Current values, predictions, and bounds.
    "goodput": "green", "in": "green", "use": "green", "of": "blue", "plan": "blue", "capacity": _GREY, "limit": _GREY,
    "budget": "blue", "floor": "purple", "ceiling": "orange", "window": _GREY, "ungranted": "yellow",
    # Quantiles and other statistics.
    "p50": "green", "p90": "yellow", "p99": "red", "min": "blue", "mean": "green", "smoothed": "green", "max": "orange",
    # Outcomes, kinds and evidence: green is good, and grey is not an error.
    "ok": "green", "complete": "green", "won": "green", "primary": "green", "replica": "yellow", "partial": "yellow",
    "cancelled": _GREY, "lost": _GREY, "expired": "purple", "queue_deadline": "purple", "refused": "purple",
    "rpc_deadline": "orange", "deadline": "orange", "stall": "yellow", "tcp_rto": "red", "rto": "red", "none": "red",
    "rpc_error": "red", "failed": "red", "error": "red", "corrupt": "dark-red", "silence": "red", "out_of_order": "orange",
    "hit": "green", "joined": "blue", "miss": "yellow", "used": "green", "wasted": "orange", "changed": "blue",
    "not_found": "yellow", "out_of_range": "orange", "invalid": "purple",
    "retransmit": "orange", "some": "orange", "probe": "blue", "grow": "green", "back_off": "red", "give_back": "yellow",
    "http2": "green", "connect": "blue", "worker_tunnel": "orange", "scheduled_tunnel": "yellow", "other_tunnel": _GREY, "handshake_failed": "red",
    "unreachable": "yellow", "stuck": "red", "idle": _GREY, "connected": "green", "wanted": _GREY,
    "applied": "green",
}  # fmt: skip

# The values of the label at the start of a legend, by the metric that has it.
_VALUES = {
    "sluice_goodput_bytes_total": "primary replica",
    "sluice_blocks_total": "complete partial failed cancelled deadline refused",
    "sluice_calls_total": "ok rpc_error rpc_deadline cancelled corrupt expired",
    "sluice_worker_sru_requests_total": "ok not_found out_of_range invalid cancelled error",
    "sluice_worker_manifest_requests_total": "ok not_found out_of_range invalid cancelled error",
    "sluice_hedges_total": "won lost refused",
    "sluice_timeouts_total": "rpc_deadline queue_deadline stall tcp_rto",
    "sluice_inferred_losses": "out_of_order silence",
    "sluice_budget_decisions_total": "grow probe back_off give_back",
    "sluice_worker_reported_tcp_total": "retransmit rto",
    "sluice_worker_tcp_losses_total": "none some probe",
    "sluice_link_rtt_seconds": "min smoothed",
    "sluice_mid_level_cache_lookups_total": "hit joined miss",
    "sluice_mid_level_read_ahead_blocks_total": "used wasted",
    "sluice_config_reloads_total": "applied invalid refused",
    "sluice_proxy_connections_total": "http2 connect worker_tunnel scheduled_tunnel other_tunnel refused handshake_failed unreachable",
}

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _targets(queries, **more):
    return [
        {"datasource": DATASOURCE, "refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, **more}
        for index, (expression, legend) in enumerate(queries)
    ]


def _words(expression, legend):
    first = legend.split()[0]
    if not first.startswith("{{"):
        return [first]
    return [word for metric, values in _VALUES.items() if metric in expression for word in values.split()]


def _colour_overrides(queries):
    words = dict.fromkeys(word for query in queries for word in _words(*query))
    return [
        {
            "matcher": {"id": "byRegexp", "options": rf"/^{word}\b/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": _COLOURS[word]}}],
        }
        for word in words
        if word in _COLOURS
    ]


def lines(title, unit, description, queries, stacked=False, width=8):
    custom = {"lineWidth": 1, "fillOpacity": 30 if stacked else 0, "showPoints": "never", "spanNulls": False}
    custom["stacking"] = {"mode": "normal" if stacked else "none", "group": "A"}
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "gridPos": {"w": width, "h": 8},
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "color": {"mode": "palette-classic"}, "custom": custom},
            "overrides": _colour_overrides(queries),
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": _targets(queries),
    }


def stat(title, unit, description, expression, steps, legend="{{instance}}"):
    """`steps`: pairs of a value and the colour from this value on. None is minus infinity."""
    thresholds = [{"color": colour, "value": value} for value, colour in steps]
    return {
        "type": "stat",
        "title": title,
        "description": description,
        "gridPos": {"w": 4, "h": 4},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "color": {"mode": "thresholds"},
                "thresholds": {"mode": "absolute", "steps": thresholds},
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        "targets": _targets([(expression, legend)]),
    }


def heatmap(title, description, buckets):
    """`buckets`: the number of events within each step of time, by le."""
    return {
        "type": "heatmap",
        "title": title,
        "description": description,
        "gridPos": {"w": 12, "h": 9},
        "options": {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5, "steps": 64},
            "filterValues": {"le": 1e-9},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"show": True, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "unit": "s"},
        },
        "targets": _targets([(buckets, "{{le}}")], format="heatmap"),
    }


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def placed(panels):
    """Places panels from left to right and top to bottom. All panels of a line have the same height."""
    x = y = height = 0
    for identity, panel in enumerate(panels, start=1):
        position = panel["gridPos"]
        if x + position["w"] > WIDTH:
            x, y = 0, y + height
        panel.update(id=identity, gridPos={"x": x, "y": y, **position})
        if panel["type"] != "row":
            panel["datasource"] = DATASOURCE
        x, height = x + position["w"], position["h"]
    return panels
