#!/usr/bin/env python3
"""Prints recording and alert rules as one PrometheusRule, for clusters with the Prometheus operator:
make_prometheus_rule.py > ../overlays/monitoring/prometheus-rule.yaml. A test compares the two.

The file is in git, because `kubectl apply -k deploy/overlays/monitoring` reads it and cannot run a program."""

import pathlib

_HERE = pathlib.Path(__file__).resolve().parent
_HEADER = """\
# Made by deploy/monitoring/make_prometheus_rule.py from the rules beside it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
spec:
  groups:
"""


def groups(path):
    """Returns the text below `groups:`, indented by two more columns. Comments and folded text stay unchanged."""
    _, _, below = path.read_text().partition("\ngroups:\n")
    return "".join(f"  {line}" if line.strip() else line for line in below.splitlines(keepends=True))


if __name__ == "__main__":
    print(_HEADER + groups(_HERE / "recording-rules.yml") + "\n" + groups(_HERE / "alert-rules.yml"), end="")
