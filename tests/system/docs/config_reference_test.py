#!/usr/bin/env python3
"""docs/reference/config.md is what its generator prints: config_reference_test.py BIN."""

import pathlib
import subprocess
import sys
import unittest

_REFERENCE = pathlib.Path(__file__).resolve().parents[3] / "docs/reference"
sys.path.insert(0, str(_REFERENCE))
import make_config  # noqa: E402

_BIN = pathlib.Path(sys.argv.pop(1))


class ConfigReferenceTest(unittest.TestCase):
    maxDiff = None

    def test_the_page_is_what_the_generator_prints(self):
        page = (_REFERENCE / "config.md").read_text()
        self.assertEqual(page, make_config.page(_BIN), "run docs/reference/make_config.py BIN > docs/reference/config.md")

    def test_every_flag_of_the_page_is_in_help(self):
        for program in make_config.PROGRAMS:
            def output(flag):
                return subprocess.run([_BIN / program, flag], capture_output=True, text=True, timeout=60, check=True).stdout

            text = output("--help")
            for flag in [word.strip("`") for word in output("--config_reference").split() if word.startswith("`--")]:
                self.assertRegex(text, rf"(?m)^ *{flag}\b")


if __name__ == "__main__":
    unittest.main(verbosity=2)
