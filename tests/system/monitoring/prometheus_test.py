#!/usr/bin/env python3
"""Tests rules, dashboard and pages with a real Prometheus that scrapes the real programs: prometheus_test.py
PROGRAMS.

Every series in their queries must exist: the metrics and the values of labels, including the matchers of every
selector.
"""

import contextlib
import platform
import re
import sys
import tempfile
import unittest

import needs
from demo import Demo, Prometheus, settled, wait_until
from monitored import dashboard_queries, documented_metrics, documented_queries, rules, variables
from promql import selectors

_PROGRAMS = []  # the folder of the programs

# Prometheus creates this series for firing alerts. Without problems it does not exist.
_OF_ALERTS = re.compile(r"ALERTS\b")
# These series exist only while a worker has a fault, after the first scheduled tunnel, while a group has clients, or with
# an access log.
_NOT_ALWAYS = re.compile(r"sluice_worker_fault\b|sluice_tunnel|sluice_proxy_group_|sluice_proxy_access_log|sluice_sharing_class_")
# Alerts about the machine may fire, because it may be busy and its network has other users.
_MAY_FIRE = {"SluiceTimersLate", "SluiceSpuriousTimeouts"}
# Older kernels do not report these timeouts, and the recording rule then uses a different series.
_SINCE_KERNEL = {"sluice_worker_tcp_rtos_total": (6, 7)}
# Jobs by the headings of docs/reference/metrics.md.
_JOBS = {
    "Aggregator": ["sluice-aggregator"],
    "Worker": ["sluice-worker"],
    "Mid-level aggregator": ["sluice-aggregator"],
    "Shared link": ["sluice-link"],
    "Proxy": ["sluice-proxy"],
    "Both": ["sluice-aggregator", "sluice-worker", "sluice-proxy"],
}
# The proxy is the only program that has classes of traffic. The library has them, too.
_CLASSES = re.compile(r"sluice_class_")


def of_job(selector, job):
    """Returns the selector limited to one job."""
    name, _, matchers = selector.partition("{")
    return f'{name}{{job="{job}"' + (f", {matchers}" if matchers else "}")


def of_this_kernel(selector):
    release = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    return release >= _SINCE_KERNEL.get(selector.partition("{")[0], (0, 0))


class MonitoringTest(unittest.TestCase):
    """Base of tests that share one demo per class."""

    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-monitoring-"))
            cls.demo = Demo(_PROGRAMS[0], folder, stack)
            cls.prometheus = Prometheus(cls.demo.targets, folder, stack)
            cls.wait_for_a_scrape_of_all()
            cls.demo.read()
            cls.wait_for_rules_to_see_it()
            cls.addClassCleanup(stack.pop_all().close)

    @classmethod
    def wait_for_a_scrape_of_all(cls):
        targets = len(cls.demo.targets)
        wait_until(lambda: cls.prometheus.value("count(up == 1)") == targets, "Prometheus to scrape all targets")

    @classmethod
    def wait_for_rules_to_see_it(cls):
        complete = 'instance:sluice_blocks_complete:ratio_rate5m{job="sluice-aggregator"}'
        wait_until(lambda: cls.prometheus.value(complete) == 1, "the recording rules to see blocks")
        for _ in range(2):  # one evaluation may already be in progress
            before = cls.evaluations()
            wait_until(lambda: not before & cls.evaluations(), "every group of rules to be evaluated again")

    @classmethod
    def evaluations(cls):
        return {(group["name"], group["lastEvaluation"]) for group in cls.prometheus.ask("rules")["groups"]}


class HealthyTest(MonitoringTest):
    """Runs without any fault."""

    def expand(self, expression):
        """Expands Grafana's variables as Grafana does when a user selects all instances one by one."""
        for name, (selector, label) in variables().items():
            values = sorted({series[label] for series in self.prometheus.series(selector)})
            self.assertTrue(values, f"nothing to choose from for ${name}")
            expression = expression.replace(f"${name}", f"({'|'.join(map(re.escape, values))})".replace("\\", "\\\\"))
        return expression.replace("$__rate_interval", "1m")

    def queries(self):
        """Returns (location, expression) of all queries except those of the rules."""
        queries = [(f"variable {name}", selector) for name, (selector, _) in variables().items()]
        queries += [(where, self.expand(query)) for where, query in dashboard_queries()]
        return queries + documented_queries()

    def test_every_rule_is_loaded_and_healthy(self):
        loaded = self.prometheus.rules()
        self.assertEqual(
            sorted(rule["name"] for rule in loaded), sorted(rule.get("alert") or rule["record"] for rule in rules())
        )
        for rule in loaded:
            self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""), rule["name"])

    def test_every_series_that_is_asked_for_is_there(self):
        asked = [(f"rule {rule.get('alert') or rule['record']}", rule["expr"]) for rule in rules()] + self.queries()
        wanted = {}
        for where, query in asked:
            self.assertTrue(selectors(query), f"{where} asks for nothing")
            for selector in selectors(query):
                if not _OF_ALERTS.match(selector) and not _NOT_ALWAYS.match(selector) and of_this_kernel(selector):
                    wanted.setdefault(selector, where)
        self.none_is_missing({selector: f"{selector}  ({where})" for selector, where in wanted.items()})

    def test_every_metric_that_is_documented_is_there(self):
        wanted = {
            of_job(sample, job): f"{sample}  ({job})"
            for heading, samples in documented_metrics()
            for sample in samples
            for job in (["sluice-proxy"] if _CLASSES.match(sample) else _JOBS[heading])
            if of_this_kernel(sample) and not _NOT_ALWAYS.match(sample)
        }
        self.assertTrue(wanted)
        self.none_is_missing(wanted)

    def test_no_invariant_is_breached(self):
        for job in ("sluice-aggregator", "sluice-proxy", "sluice-link"):
            self.assertEqual(self.prometheus.value(f'sluice_invariant_breaches_total{{job="{job}"}}'), 0, job)

    def test_every_expression_can_be_evaluated(self):
        for where, query in self.queries():
            with self.subTest(where):
                self.prometheus.ask("query", query=query)

    def test_recording_rules_see_what_was_read(self):
        aggregator = '{job="sluice-aggregator"}'
        goodput = f"instance:sluice_goodput_bytes:rate5m{aggregator}"
        proxied = 'instance:sluice_goodput_bytes:rate5m{job="sluice-proxy"}'
        sent = 'instance:sluice_worker_sent_bytes:rate5m{job="sluice-worker"}'  # the mid-level aggregator sent nothing
        for rate in (goodput, proxied, sent):
            # Prometheus scrapes one target after another, so the targets show an event at different times.
            wait_until(lambda rate=rate: (self.prometheus.value(rate) or 0) > 0, f"{rate} to be more than 0")
        p99 = self.prometheus.value(f"instance:sluice_block_seconds:p99_rate5m{aggregator}")
        self.assertGreaterEqual(p99, self.prometheus.value(f"instance:sluice_block_seconds:p50_rate5m{aggregator}"))

    def test_no_alert_fires(self):
        """Includes alerts that would first wait for minutes. On a busy machine a scrape may be late."""
        firing = settled(lambda: {labels["alertname"] for labels in self.prometheus.firing()} - _MAY_FIRE)
        self.assertEqual(firing, set())

    def none_is_missing(self, wanted):
        """`wanted` has selectors, each with a name for the message."""
        missing = settled(lambda: [name for selector, name in wanted.items() if not self.prometheus.series(selector)])
        if missing:
            self.fail("no scrape and no rule has these:\n" + "\n".join(sorted(missing)))


class WorkerDiesTest(MonitoringTest):
    """Checks that alerts fire when there is a fault."""

    def test_an_alert_fires_and_is_a_series_of_its_own(self):
        self.demo.worker.end()
        expected = {
            "alertname": "SluiceTargetDown",
            "severity": "critical",
            "job": "sluice-worker",
            "instance": self.demo.targets["sluice-worker"],
        }
        wait_until(lambda: expected in self.prometheus.firing(), f"{expected['alertname']} to fire")
        fault = "sluice_worker_fault{fault='unreachable', job='sluice-aggregator'}"
        wait_until(lambda: self.prometheus.series(fault), "the aggregator to name a worker that is unreachable")
        wait_until(
            lambda: "SluiceWorkerAtFault" in {labels["alertname"] for labels in self.prometheus.firing()},
            "SluiceWorkerAtFault to fire",
        )
        alert_queries = [query for _, query in dashboard_queries() if "ALERTS" in query]
        self.assertEqual(len(alert_queries), 2)
        for query in alert_queries:
            wait_until(lambda query=query: self.prometheus.ask("query", query=query)["result"], f"{query} to show it")


if __name__ == "__main__":
    needs.program("prometheus")
    _PROGRAMS.append(sys.argv.pop(1))
    unittest.main(verbosity=2)
