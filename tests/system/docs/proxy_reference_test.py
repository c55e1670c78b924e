#!/usr/bin/env python3
"""Checks that docs/reference/proxy.md has every limit of the config, and docs/reference/metrics.md every metric of a
proxy with its label values: proxy_reference_test.py BUILD. Exits with code 77 if the network for the metrics cannot
be created."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_GUIDE = (_REPOSITORY / "docs/guides/proxy.md").read_text()
_CLIENTS = (_REPOSITORY / "docs/guides/proxy-by-language.md").read_text()
_REFERENCE = (_REPOSITORY / "docs/reference/proxy.md").read_text()
_METRICS = (_REPOSITORY / "docs/reference/metrics.md").read_text()
_PROTO = (_REPOSITORY / "proto/sluice/v1/config.proto").read_text()
_SKIP = 77
_OPAQUE = {"routes", "clients", "link", "schedule", "shared_link", "tls"}  # have their own tables or rows
# These exist only while a group has clients, or with an access log.
_NOT_ALWAYS = re.compile(r"sluice_proxy_group_|sluice_proxy_access_log")
_SCRAPED = {}
_HELP = ""


def fields(message):
    body = re.search(rf"^message {message} {{\n(.*?)^}}", _PROTO, re.M | re.S)[1]
    found = re.findall(r"^  (?:repeated |optional )?(\w+) (\w+) = \d+\b", body, re.M)
    for kind, name in found:
        if kind.startswith("Proxy") and name not in _OPAQUE:
            yield from (f"{name}.{inner}" for inner in fields(kind))
        else:
            yield name


def documented_metrics():
    """Returns {name: values of its first label, if they are fixed}."""
    section = re.search(r"^## Proxy\n(.*?)^## ", _METRICS, re.M | re.S)[1]
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", section, re.M)
    return {name: set(re.findall(r"`(\w+)`", labels.partition(":")[2])) for name, labels in rows}


class ReferenceTest(unittest.TestCase):
    def test_every_limit_has_a_row_and_every_row_a_field(self):
        section = re.search(r"^## Config\n(.*?)^## ", _REFERENCE, re.M | re.S)[1]
        tables = re.findall(r"^\| field \|.*?\n\n", section, re.M | re.S)
        cells = [cell for table in tables for cell in re.findall(r"^\| ([^|]+) \|", table, re.M)]
        rows = [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]
        known = set(fields("ProxyConfig"))
        self.assertEqual([name for name in rows if name not in known], [])
        self.assertEqual(sorted(name for name in rows if name.startswith("limits.")),
                         sorted(name for name in known if name.startswith("limits.")))

    def test_every_field_has_a_flag(self):
        others = {"routes": ["route"], "clients": ["client"], "link": ["capacity", "buffer", "rtt"], "schedule": ["policy", "budget"],
                  "shared_link": ["shared_link_socket"], "tls": ["tls_ca", "tls_certificate", "tls_key", "tls_server_name"]}
        for field in fields("ProxyConfig"):
            for flag in others.get(field, [field.replace(".", "_")]):
                self.assertRegex(_HELP, rf"(?m)^ *--{flag}\b", field)

    def test_its_code_in_cpp_is_that_of_an_example(self):
        def lines(text):
            return "\n".join(line.strip() for line in text.strip().splitlines())

        example = lines((_REPOSITORY / "examples/adoption/endpoint.cc").read_text())
        snippets = re.findall(r"^```cpp\n(.*?)^```", _CLIENTS, re.M | re.S)
        self.assertEqual(len(snippets), 2)
        for snippet in snippets:
            self.assertIn(lines(snippet), example)

    def test_its_config_is_the_one_in_deploy(self):
        config = re.search(r"```json\n(.*?)```", _GUIDE, re.S)[1]
        self.assertEqual(config, (_REPOSITORY / "deploy/proxy.json").read_text())

    def test_a_proxy_shows_the_metrics_that_are_documented(self):
        shown = {}
        for sample in _SCRAPED:
            name, _, labels = sample.partition("{")
            values = set(re.findall(r'(?:kind|to)="(\w+)"', labels))
            shown.setdefault(re.sub(r"_(count|sum)$", "", name), set()).update(values)
        always = {name: values for name, values in documented_metrics().items() if not _NOT_ALWAYS.match(name)}
        self.assertEqual({name: values for name, values in shown.items() if not _NOT_ALWAYS.match(name)}, always)


def main(build):
    global _HELP
    _HELP = subprocess.run([f"{build}/bin/sluice-proxy", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    # Any call is sufficient, even to a method that the worker lacks.
    call = ["env", "http_proxy=http://127.0.0.1:7400", f"{build}/bin/sluice-load", "--aggregator=10.0.0.1:7000"]
    ran = subprocess.run([sys.executable, _REPOSITORY / "tests/system/docs/with_proxy", f"{build}/bin", "sh", "-c",
                          '"$@" >/dev/null 2>&1 || true', "sh", *call, "--file=none", "--blocks=1"],
                         capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode == _SKIP:
        print(ran.stderr)
        return _SKIP
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    _SCRAPED.update(json.loads(ran.stdout.splitlines()[-1]))
    return 0 if unittest.main(argv=sys.argv[:1], verbosity=2, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv.pop(1)))
