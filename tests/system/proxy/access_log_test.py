#!/usr/bin/env python3
"""The collector's config in deploy/monitoring reads what sluice-proxy writes to its access log: access_log_test.py BUILD. Exits
with code 77 and prints the reason if grpcio or PyYAML is missing."""

import contextlib
import datetime
import json
import pathlib
import re
import sys
import tempfile
import time
import unittest

from programs import METHOD, PATIENCE_S, REQUEST, started, worker
from stock_grpc import grpc

try:
    import yaml
except ImportError:
    print("Python has no yaml: Debian's package python3-yaml")
    sys.exit(77)

_CONFIG = pathlib.Path(__file__).resolve().parents[3] / "deploy/monitoring/otel-collector.yaml"
_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
# Go's layout of the time in a line, in the words of Python.
_LAYOUTS = {"2006-01-02T15:04:05.000Z": "%Y-%m-%dT%H:%M:%S.%fZ"}
_BUILD = None


def attributes_in(config):
    """The names of all `attributes.NAME` in a config."""
    if isinstance(config, dict):
        return set().union(*(attributes_in(value) for value in config.values()))
    if isinstance(config, list):
        return set().union(*(attributes_in(value) for value in config))
    return set(re.findall(r"attributes\.(\w+)", str(config)))


class AccessLogTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._log = self._folder / "access.log"
        self._worker = stack.enter_context(worker(_BUILD, self._folder))
        ready = self._folder / "proxy"
        argv = [_BUILD / "bin/sluice-proxy", "--listen", "127.0.0.1:0", "--workers", "127.0.0.0/8", "--log-level", "warning",
                "--access-log-file", self._log, "--ready-file", ready]  # fmt: skip
        _, (self._proxy,) = stack.enter_context(started(argv, ready))

    def _line_of_a_call(self):
        options = [("grpc.default_authority", self._worker)]
        with grpc.insecure_channel(self._proxy, options=options) as channel:
            trace = ("traceparent", f"00-{_TRACE}-{_SPAN}-01")
            channel.unary_unary(METHOD)(REQUEST, timeout=PATIENCE_S, metadata=[trace])
        deadline = time.monotonic() + PATIENCE_S
        while not self._log.exists() or not self._log.read_text().endswith("\n"):
            self.assertLess(time.monotonic(), deadline, "no line was written")
            time.sleep(0.01)
        return json.loads(self._log.read_text())

    def test_the_collector_finds_the_fields_of_a_line(self):
        line = self._line_of_a_call()
        config = yaml.safe_load(_CONFIG.read_text())
        parse_json, parse_trace, set_trace = config["receivers"]["filelog/sluice"]["operators"]
        self.assertEqual([parse_json["type"], parse_trace["type"], set_trace["type"]], ["json_parser", "regex_parser", "trace_parser"])
        when = datetime.datetime.strptime(line["time"], _LAYOUTS[parse_json["timestamp"]["layout"]])
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        self.assertLess(abs(now - when), datetime.timedelta(minutes=5))
        self.assertEqual(parse_json["severity"]["mapping"]["info"], line["outcome"])
        trace = re.match(parse_trace["regex"], line["traceparent"]).groupdict()
        self.assertEqual(trace, {"trace_id": _TRACE, "span_id": _SPAN, "trace_flags": "01"})
        known = set(line) | set(trace)
        self.assertLessEqual(attributes_in(config["receivers"]), known)

    def test_each_component_is_in_the_pipeline(self):
        config = yaml.safe_load(_CONFIG.read_text())
        (pipeline,) = config["service"]["pipelines"].values()
        for kind in ("receivers", "processors", "exporters"):
            self.assertEqual(set(pipeline[kind]), set(config[kind]))


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
