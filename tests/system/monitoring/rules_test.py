#!/usr/bin/env python3
"""Checks the rules of deploy/monitoring and their cases with promtool, and that every alert has a case and a page."""

import pathlib
import re
import subprocess
import unittest

import needs
from monitored import CONFIG_FILE, REPOSITORY, RULE_FILES, RUNBOOKS, alerts, load_yaml, rules

_HERE = pathlib.Path(__file__).resolve().parent
_RECORDING_CASES = _HERE / "recording_rules.yml"
_ALERT_CASES = sorted((_HERE / "alerts").glob("*.yml"))
_HEADINGS = ["What it means", "How to see it", "Likely causes", "What to do", "When it is harmless"]


def promtool(*arguments):
    argv = ["promtool", *map(str, arguments)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(argv, check=False, timeout=120, **output)


def alert_checks(path):
    """Returns (alert, expected firing alerts) of a file of cases."""
    return [
        (check["alertname"], check["exp_alerts"])
        for case in load_yaml(path)["tests"]
        for check in case["alert_rule_test"]
    ]


class PromtoolTest(unittest.TestCase):
    def accepts(self, *arguments):
        result = promtool(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_rules_are_valid(self):
        self.accepts("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)

    def test_the_configuration_is_valid(self):
        self.accepts("check", "config", "--lint=all", "--lint-fatal", CONFIG_FILE)

    def test_recording_rules_give_the_values_that_they_should(self):
        self.accepts("test", "rules", _RECORDING_CASES)

    def test_alerts_fire_when_they_should(self):
        for path in _ALERT_CASES:
            with self.subTest(path.name):
                self.accepts("test", "rules", path)


class AlertsTest(unittest.TestCase):
    def test_each_says_what_an_operator_has_to_know(self):
        for name, alert in alerts().items():
            with self.subTest(name):
                self.assertIn(alert["labels"]["severity"], ("critical", "warning"))
                self.assertEqual(set(alert["annotations"]), {"summary", "description", "runbook"})
                for annotation in ("summary", "description"):
                    self.assertIn("{{ $labels.instance }}", alert["annotations"][annotation])
                if not alert["expr"].startswith(("up{", "sluice_worker_fault")):  # the value can only be 0 or 1
                    self.assertIn("$value", alert["annotations"]["description"])

    def test_each_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(self):
        for name in alerts():
            with self.subTest(name):
                checks = [expected for checked, expected in alert_checks(_HERE / f"alerts/{name}.yml") if checked == name]
                self.assertTrue(any(checks), "no case in which it fires")
                quiet_cases = [
                    case
                    for case in load_yaml(_HERE / f"alerts/{name}.yml")["tests"]
                    if not any(check["exp_alerts"] for check in case["alert_rule_test"])
                ]
                self.assertTrue(quiet_cases, "no case in which it never fires")

    def test_each_has_a_page(self):
        for name, alert in alerts().items():
            with self.subTest(name):
                page = REPOSITORY / alert["annotations"]["runbook"]
                self.assertEqual(page, RUNBOOKS / f"{name}.md")
                text = page.read_text()
                self.assertTrue(text.startswith(f"# {name}\n"), "its title is not the name of the alert")
                headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
                self.assertEqual(headings, _HEADINGS)
                self.assertIn("```promql", text)

    def test_no_page_and_no_case_is_about_an_alert_that_is_gone(self):
        self.assertEqual({path.stem for path in RUNBOOKS.glob("*.md")}, set(alerts()))
        self.assertEqual({path.stem for path in _ALERT_CASES}, set(alerts()))
        for path in _ALERT_CASES:
            self.assertEqual({name for name, _ in alert_checks(path)}, {path.stem})

    def test_cases_are_about_the_rules_that_operators_are_given(self):
        for path in (*_ALERT_CASES, _RECORDING_CASES):
            with self.subTest(path.name):
                tested = {(path.parent / name).resolve() for name in load_yaml(path)["rule_files"]}
                self.assertLessEqual(tested, set(RULE_FILES))


class RecordingRulesTest(unittest.TestCase):
    def test_names_are_level_metric_and_operations(self):
        for rule in rules():
            if "record" in rule:
                self.assertRegex(rule["record"], r"^(instance|job)(_[a-z]+)?:sluice_[a-z0-9_]+:[a-z0-9]+(_[a-z0-9]+)*$")

    def test_each_has_a_value_that_is_expected(self):
        cases = load_yaml(_RECORDING_CASES)["tests"]
        checks = [check for case in cases for check in case["promql_expr_test"] if check["exp_samples"]]
        tested = {re.search(r"[a-z]+(?:_[a-z]+)?:\w+:\w+", check["expr"])[0] for check in checks}
        self.assertEqual({rule["record"] for rule in rules() if "record" in rule}, tested)


if __name__ == "__main__":
    needs.program("promtool")
    unittest.main(verbosity=2)
