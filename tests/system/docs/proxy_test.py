#!/usr/bin/env python3
"""Tests the claims of docs/guides/proxy-by-language.md for clients in one language: proxy_test.py LANGUAGE BUILD. The snippets
are code of a client, which the test builds and runs with workers and a proxy. Exits with code 77 and prints the
reason if the machine lacks a requirement."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

import proxy_clients  # noqa: E402

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_DOCUMENT = (_REPOSITORY / "docs/guides/proxy-by-language.md").read_text()
_README = (_REPOSITORY / "README.md").read_text()
_SKIP = 77
_PATIENCE = 120  # seconds for one run
_WORKERS = ("10.0.0.1:7000", "10.0.0.2:7000")
_FENCE = {"node": "js"}  # languages of code fences that have a different name
_PROXY_VARIABLES = re.compile("(no_)?(grpc_)?(https?_)?proxy|java_tool_options", re.I)
_GET = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1]).read().decode())"  # does what curl does
_LANGUAGE = ""
_BUILD = pathlib.Path()
_CLIENT = []


class Unsupported(Exception):
    pass


def snippets(language):
    return re.findall(rf"^```{_FENCE.get(language, language)}\n(.*?)^```$", _DOCUMENT, re.M | re.S)


def lines(text):
    """Returns the lines of code without indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def beside_a_proxy(client):
    own = {name: value for name, value in os.environ.items() if not _PROXY_VARIABLES.fullmatch(name)}
    own["PATH"] = f"{_BUILD}/bin:{own['PATH']}"
    command = [sys.executable, _REPOSITORY / "tests/system/docs/with_proxy", _BUILD / "bin", *client]
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=_PATIENCE, check=False)


def calls(way, environment=None):
    """Returns the metrics of the proxy after calls to both workers."""
    assignments = [f"{name}={value}" for name, value in (environment or {}).items()]
    result = beside_a_proxy(["env", *assignments, *_CLIENT, way, *_WORKERS])
    if result.returncode == _SKIP:
        raise Unsupported(result.stderr.strip())
    if result.returncode != 0:
        raise AssertionError(f"{way}: {result.stdout}{result.stderr}")
    *served, metrics = result.stdout.splitlines()
    if served != ["2 served"]:
        raise AssertionError(f"{way}: {served}")
    return json.loads(metrics)


class ProxyDocumentTest(unittest.TestCase):
    def expect_calls(self, seen, kind):
        """Every call must have gone through the proxy and its schedule."""
        self.assertEqual(seen['sluice_proxy_calls_total{code="OK",workers="10.0.0.0/8"}'], 2)
        self.assertEqual(seen[f'sluice_proxy_connections_total{{kind="{kind}"}}'], 2)

    def test_its_code_is_that_of_the_client(self):
        source = lines(proxy_clients.source(_LANGUAGE))
        self.assertEqual(len(snippets(_LANGUAGE)), source.count("[snippet]") // 2)
        for snippet in snippets(_LANGUAGE):
            comment = "#" if _LANGUAGE == "python" else "//"
            self.assertIn(lines(f"{comment} [snippet]\n{snippet}{comment} [snippet]"), source)

    def test_the_environment_is_all_that_an_unchanged_program_needs(self):
        if _LANGUAGE == "rust":
            self.assertIn("tonic takes no proxy from the environment", _DOCUMENT)
        environment = proxy_clients.ENVIRONMENT[_LANGUAGE]
        for name, value in environment.items():
            self.assertRegex(_DOCUMENT, rf'{name}="?{re.escape(value)}"? ')
        self.expect_calls(calls("connector" if _LANGUAGE == "rust" else "environment", environment), "connect")

    def test_the_lines_of_the_readme(self):
        if _LANGUAGE != "python":
            return  # these lines are for Python
        (start, ask, look) = re.search(r"```bash\n(.*?)```", _README, re.S)[1].splitlines()
        ask = ask.replace("python3 aggregator.py", " ".join([*_CLIENT, "environment", *_WORKERS]))
        wait = "until (exec 3<>/dev/tcp/127.0.0.1/7400) 2>/dev/null; do :; done"
        script = "\n".join([start, wait, ask, look, "kill $!; wait $!"])
        if not shutil.which("curl"):
            script = script.replace("curl", f"{sys.executable} -c '{_GET}'")
        for port, free in (("7400", "7410"), ("9103", "9113")):  # another proxy uses the first port
            script = script.replace(port, free)
        result = beside_a_proxy(["bash", "-ec", script])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('sluice_proxy_calls_total{code="OK",workers="private"} 2', result.stdout)

    def test_the_ways_of_its_code(self):
        ways = {"authority": "http2", "fan-out": "http2", "package": "http2"}
        if _LANGUAGE != "rust":
            ways["tls"] = "http2"
        if _LANGUAGE == "java":
            ways["detector"] = "connect"
        for way, kind in ways.items():
            with self.subTest(way):
                self.expect_calls(calls(way), kind)


def main(language, build):
    global _LANGUAGE, _BUILD
    _LANGUAGE, _BUILD = language, pathlib.Path(build).resolve()
    try:
        _CLIENT.extend(proxy_clients.client(language, build))
        calls("authority")  # fails if the network cannot be created
    except (proxy_clients.Missing, Unsupported) as missing:
        print(f"SKIPPED: {missing}")
        return _SKIP
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(ProxyDocumentTest)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
