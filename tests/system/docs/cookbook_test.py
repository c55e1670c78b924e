#!/usr/bin/env python3
"""Tests docs/guides/cookbook.md: its code must be in the examples that are built, and the recipes must run: cookbook_test.py
FOLDER_OF_PROGRAMS"""

import pathlib
import re
import subprocess
import sys
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_PAGE = (_REPOSITORY / "docs/guides/cookbook.md").read_text()
_SOURCES = {
    "cpp": ["examples/cookbook/cookbook.cc", "examples/adoption/coroutine.cc", "examples/coded-read/coded_read.cc",
            "examples/ranged-get/ranged_get.cc"],
    "python": ["examples/stock-clients/redis_load.py", "examples/stock-clients/flight_load.py"],
}
_PROGRAMS = pathlib.Path()
_SHARDS = 8
_PATIENCE = 60  # seconds


def lines(text):
    """Returns the lines of code without indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


class CookbookTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        argv = [_PROGRAMS / "adoption-server", str(_SHARDS)]
        servers = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # until its input ends
        cls.addClassCleanup(lambda: servers.communicate(timeout=_PATIENCE))
        cls.shards = servers.stdout.readline().split()

    def cook(self, recipe):
        argv = [_PROGRAMS / "cookbook", recipe, *self.shards]
        return subprocess.run(argv, capture_output=True, check=True, text=True, timeout=_PATIENCE).stdout.splitlines()

    def test_its_code_is_that_of_the_examples(self):
        for language, files in _SOURCES.items():
            code = "\n".join(lines((_REPOSITORY / file).read_text()) for file in files)
            snippets = re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.M | re.S)
            self.assertTrue(snippets)
            for snippet in snippets:
                self.assertIn(lines(snippet), code)

    def test_it_has_every_recipe_of_the_program(self):
        program = (_REPOSITORY / "examples/cookbook/cookbook.cc").read_text()
        for snippet in program.split("// [snippet]\n")[1::2]:
            self.assertIn(lines(snippet), lines(_PAGE))

    def test_all_workers_respond(self):
        for recipe in ("stream", "scan"):
            self.assertEqual(self.cook(recipe), [f"{_SHARDS} of {_SHARDS}: OK"], recipe)

    def test_replicas_are_not_asked_first(self):
        self.assertEqual(self.cook("hedge"), [f"{_SHARDS // 2} of {_SHARDS // 2}: OK"])

    def test_a_quorum_ends_the_fan_out(self):
        self.assertEqual(self.cook("quorum"), [f"{_SHARDS * 9 // 10} of {_SHARDS}: OK"])

    def test_each_response_has_a_span(self):
        *spans, end = self.cook("trace")
        self.assertEqual(sorted(spans), sorted(self.shards))
        self.assertEqual(end, f"{_SHARDS} of {_SHARDS}: OK")


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
