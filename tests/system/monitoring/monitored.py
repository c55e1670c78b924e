"""The files for operators (rules, dashboard, pages), and their queries to Prometheus."""

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
    """Returns the panels that show data, so no rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def variables():
    """Returns the dashboard's variables by name: the metric and the label that supply the values of each."""
    found = {}
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
    return found


def dashboard_queries():
    """Returns the expressions of panels and annotations by location, with Grafana's variables in them."""
    queries = [(f"annotation {each['name']}", each["expr"]) for each in dashboard()["annotations"]["list"]]
    return queries + [(f"panel {panel['title']}", each["expr"]) for panel in panels() for each in panel["targets"]]


def documented_queries():
    """Returns the expressions of the pages: each line of a block of promql."""
    queries = []
    for page in (REPOSITORY / "docs/guides/monitor.md", REPOSITORY / "docs/guides/troubleshoot.md", *sorted(RUNBOOKS.glob("*.md"))):
        for block in re.findall(r"^```promql\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            queries += [(page.name, line) for line in block.splitlines()]
    return queries


def documented_metrics():
    """Returns the tables of docs/reference/metrics.md: for each metric its heading, and the selectors of all series
    that must exist from the start."""
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
    # If there are several labels, the last one lists its values.
    label, *values = re.findall(r"`([^`]+)`", labels.split(";")[-1]) if ":" in labels else [None]
    return [f'{name}{{{label}="{value}"}}' for value in values] or [name]
