"""Every --help begins with an example and four flags: help_test.py FOLDER_OF_PROGRAMS [unittest arguments]."""

import pathlib
import shlex
import subprocess
import sys
import unittest

PROGRAMS = pathlib.Path()
NAMES = ("aggregator", "calibrate", "cat", "diagnose", "link", "load", "plan", "proxy", "stripe", "worker")


def run(name, *flags):
    return subprocess.run([PROGRAMS / f"sluice-{name}", *flags], capture_output=True, text=True, timeout=60, check=False)


def lines_of_help(name):
    result = run(name, "--help")
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def example(name):
    program, *flags = shlex.split(lines_of_help(name)[3])
    assert program == f"sluice-{name}", program
    return flags


class HelpTest(unittest.TestCase):
    def test_example_and_four_flags_come_first(self):
        for name in NAMES:
            with self.subTest(name):
                lines = lines_of_help(name)
                self.assertTrue(lines[0].endswith("."), lines[0])
                self.assertEqual([lines[i] for i in (1, 2, 4, 5)], ["", "Example:", "", "Start with:"])
                usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
                flags = [line.split()[0] for line in lines[6:usage] if line.startswith("  --")]
                self.assertEqual(len(flags), 4, flags)
                for flag in flags:
                    listed = [line for line in lines if line.split()[:1] == [flag]]
                    self.assertEqual(len(listed), 1, f"{flag} is listed once")

    def test_examples_have_flags_that_exist(self):
        for name in NAMES:
            with self.subTest(name):
                result = run(name, *example(name), "--no-such-flag")
                self.assertEqual(result.returncode, 2)
                self.assertIn("not expected: --no_such_flag\n", result.stderr)

    def test_a_proxy_lists_the_policies_that_it_takes(self):
        policy = next(line for line in lines_of_help("proxy") if line.startswith("  --policy"))
        self.assertNotIn("batches", policy)

    def test_examples_are_valid(self):
        self.assertTrue(run("plan", *example("plan")).stdout.startswith("Sluice is needed"))
        for name in ("aggregator", "link", "proxy"):
            result = run(name, *example(name), "--check-config")
            self.assertEqual((result.returncode, result.stdout), (0, "config ok\n"), result.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
