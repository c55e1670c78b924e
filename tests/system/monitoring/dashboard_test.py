#!/usr/bin/env python3
"""Checks that the dashboard of deploy/monitoring is up to date with its generator, and that every panel is readable."""

import itertools
import re
import subprocess
import sys
import unittest

from monitored import DEPLOYED, dashboard, dashboard_queries, documented_metrics, panels, rules, variables

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24  # columns of Grafana's grid
_NOT_SHOWN = {"sluice_plan_slot_seconds"}  # only the policy `batches` uses it
# Units that Grafana supports and that fit Sluice's metrics.
_UNITS = {"Bps", "bytes", "s", "percentunit", "ops", "reqps", "pps", "short"}


def unit_of(panel):
    if panel["type"] == "heatmap":
        return panel["options"]["yAxis"]["unit"]
    return panel["fieldConfig"]["defaults"]["unit"]


def overlap(one, other):
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


class DashboardTest(unittest.TestCase):
    def test_it_is_what_the_generator_makes(self):
        argv = [sys.executable, DEPLOYED / "make_dashboard.py"]
        made = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
        self.assertTrue(
            made.stdout == (DEPLOYED / "grafana-dashboard.json").read_text(),
            "run: deploy/monitoring/make_dashboard.py > deploy/monitoring/grafana-dashboard.json",
        )

    def test_panels_lie_within_the_grid_and_beside_each_other(self):
        everything = dashboard()["panels"]
        self.assertEqual(len({panel["id"] for panel in everything}), len(everything))
        for panel in everything:
            position = panel["gridPos"]
            self.assertLessEqual(position["x"] + position["w"], _WIDTH, panel["title"])
            self.assertGreaterEqual(position["h"], 1, panel["title"])
        for one, other in itertools.combinations(everything, 2):
            self.assertFalse(overlap(one["gridPos"], other["gridPos"]), f"{one['title']} covers {other['title']}")

    def test_every_panel_says_what_it_shows_and_in_which_unit(self):
        for panel in panels():
            with self.subTest(panel["title"]):
                self.assertIn(panel["type"], ("timeseries", "stat", "heatmap"))
                self.assertRegex(panel["description"], r"\.$")
                self.assertIn(unit_of(panel), _UNITS)
        titles = [panel["title"] for panel in panels()]
        self.assertEqual(sorted(set(titles)), sorted(titles))

    def test_everything_comes_from_the_data_source_that_is_chosen(self):
        names = [variable["name"] for variable in dashboard()["templating"]["list"]]
        self.assertEqual(names, ["datasource", "instance", "worker", "link"])
        for panel in panels():
            self.assertEqual(panel["datasource"], _SOURCE)
            for target in panel["targets"]:
                self.assertEqual(target["datasource"], _SOURCE)
        for annotation in dashboard()["annotations"]["list"]:
            self.assertEqual(annotation["datasource"], _SOURCE)

    def test_queries_use_the_variables_that_there_are(self):
        used = {name for _, query in dashboard_queries() for name in re.findall(r"\$\{?(\w+)", query)}
        self.assertEqual(used, {*variables(), "__rate_interval"})
        for variable in dashboard()["templating"]["list"]:
            if variable["type"] == "query":
                self.assertEqual(variable["definition"], variable["query"]["query"])  # shown, evaluated

    def test_every_documented_metric_is_shown(self):
        queries = [query for _, query in dashboard_queries()] + [rule["expr"] for rule in rules()]
        shown = {name for query in queries for name in re.findall(r"\w+", query)}
        documented = [[sample.partition("{")[0] for sample in samples] for _, samples in documented_metrics()]
        self.assertEqual({names[0] for names in documented if not shown & set(names)}, _NOT_SHOWN)

    def test_one_thing_has_one_colour(self):
        colours = {}
        for panel in panels():
            for override in panel.get("fieldConfig", {}).get("overrides", []):
                colour = override["properties"][0]["value"]["fixedColor"]
                self.assertEqual(colours.setdefault(override["matcher"]["options"], colour), colour, panel["title"])
        self.assertGreater(len(colours), 20)

    def test_queries_of_a_panel_can_be_told_apart(self):
        for panel in panels():
            for key in ("refId", "legendFormat"):
                values = [target[key] for target in panel["targets"]]
                self.assertEqual(len(set(values)), len(values), panel["title"])
                self.assertTrue(all(values), panel["title"])
            if panel["type"] == "heatmap":
                self.assertEqual([target["format"] for target in panel["targets"]], ["heatmap"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
