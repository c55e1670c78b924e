#!/usr/bin/env python3
"""Follows docs/start/service.md word by word: service_test.py BUILD. Exits with code 77 and prints the reason if the machine
cannot make the network."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_PAGE = (_REPOSITORY / "docs/start/service.md").read_text()
_SKIP = 77
_PATIENCE = 120  # seconds for one command
_BUILD = pathlib.Path()
_LINE = r"30 searches of 64 shards: \d+\.\d Mbit/s, p50 \d+ ms, slowest \d+ ms"


def commands():
    """Returns the commands of the page after the preparation."""
    indented = re.findall(r"^    (\S.*)$", _PAGE.partition("## 2.")[2], re.M)
    return [line for line in indented if line.startswith(("examples/", "sluice-"))]


def run(command):
    network = "examples/service/network"
    environment = {**os.environ, "PATH": f"{_BUILD}/bin:{os.environ['PATH']}"}
    result = subprocess.run(
        command.replace(network, f"{network} --build {_BUILD}"), shell=True, cwd=_REPOSITORY, env=environment,
        capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr


class ServiceTest(unittest.TestCase):
    def test_every_command_prints_what_the_page_says(self):
        self.assertEqual(len(commands()), 5)
        for command in commands():
            with self.subTest(command):
                code, output, errors = run(command)
                self.assertEqual(code, 0, output + errors)
                if "frontend" in command:
                    self.assertRegex(output, _LINE)
                if "sluice-diagnose" in command:
                    self.assertRegex(output, r"(?m)^(Yes|No|Not sure): ")

    def test_its_code_is_that_of_the_example(self):
        (snippet,) = re.findall(r"^```python\n(.*?)^```$", _PAGE, re.M | re.S)
        self.assertIn(snippet, (_REPOSITORY / "examples/service/frontend_grouped.py").read_text())
        self.assertRegex(_PAGE, _LINE)


if __name__ == "__main__":
    _BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    CODE, _, ERRORS = run("examples/service/network true")
    if CODE == _SKIP:
        print(ERRORS)
        sys.exit(_SKIP)
    unittest.main(verbosity=2)
