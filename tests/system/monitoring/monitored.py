"""What operators are given: rules, dashboard, pages; and what of it Prometheus is asked."""

import json
import pathlib
import re

import needs  # noqa: F401  skips where there is no yaml
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
DEPLOYED = REPOSITORY / "deploy/monitoring"
RULE_FILES = (DEPLOYED / "recording-rules.yml", DEPLOYED / "alert-rules.yml")
CONFIG_FILE = DEPLOYED / "prometheus.yml"
RUNBOOKS = REPOSITORY / "docs/runbooks"


def load_yaml(path):
    return yaml.safe_load(path.read_text())


def rules():
    return [rule for path in RULE_FILES for group in load_yaml(path)["groups"] for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def dashboard():
    return json.loads((DEPLOYED / "grafana-dashboard.json").read_text())


def panels():
    """Those that show something: rows do not."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def variables():
    """Of the dashboard: the metric and the label whose values each may have, by name."""
    found = {}
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
    return found


def dashboard_queries():
    """Expressions of panels and annotations by where they stand, with Grafana's variables in them."""
    queries = [(f"annotation {each['name']}", each["expr"]) for each in dashboard()["annotations"]["list"]]
    return queries + [(f"panel {panel['title']}", each["expr"]) for panel in panels() for each in panel["targets"]]


def documented_queries():
    """Expressions of the pages: each line of a block of promql."""
    queries = []
    for page in (REPOSITORY / "docs/guides/monitor.md", REPOSITORY / "docs/guides/troubleshoot.md", *sorted(RUNBOOKS.glob("*.md"))):
        for block in re.findall(r"^```promql\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            queries += [(page.name, line) for line in block.splitlines()]
    return queries


def documented_metrics():
    """The tables of docs/reference/metrics.md: (heading, selectors of all that has to be there from the start) of each metric."""
    found = []
    heading = ""
    for line in (REPOSITORY / "docs/reference/metrics.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        if line.startswith("| `"):
            found.append((heading, _samples(*(cell.strip() for cell in line.split("|")[1:4]))))
    return found


def _samples(name, kind, labels):
    name = name.strip("`")
    if kind == "histogram":
        return [f"{name}_{suffix}" for suffix in ("bucket", "sum", "count")]
    # Of several labels, the last one has its values.
    label, *values = re.findall(r"`([^`]+)`", labels.split(";")[-1]) if ":" in labels else [None]
    return [f'{name}{{{label}="{value}"}}' for value in values] or [name]
