#!/usr/bin/env python3
"""Tests the fan-out of examples/adoption before and after each way of moving it to Sluice: adoption_test.py
FOLDER_OF_PROGRAMS MOVED... All must return the same results from the same plain servers. The changes must be as
small as docs/guides/adopt.md claims."""

import difflib
import pathlib
import re
import subprocess
import sys
import unittest

_EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/adoption"
_DOCUMENT = (_EXAMPLE.parents[1] / "docs/guides/adopt.md").read_text()
_PROGRAMS = pathlib.Path()
_PATIENCE = 60  # seconds that a test waits for an expected event
_SHARDS = 40
_MOVED = []  # the moved programs that this compiler can build


class Servers:
    """Plain servers without Sluice, until the `with` block ends."""

    def __enter__(self):
        argv = [_PROGRAMS / "adoption-server", str(_SHARDS)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addresses = self._process.stdout.readline().split()
        return self

    def __exit__(self, *_):
        self._process.communicate(timeout=_PATIENCE)  # the process serves until its input ends


def count_words(program, prefix, addresses):
    argv = [_PROGRAMS / f"adoption-{program}", prefix, *addresses]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE, check=True)


def new_and_gone(before, after):
    """Returns the number of new lines in `after`, and the number of lines of `before` that it lacks."""
    lines = list(difflib.ndiff(*((_EXAMPLE / name).read_text().splitlines() for name in (before, after))))
    return sum(line.startswith("+ ") for line in lines), sum(line.startswith("- ") for line in lines)


class AdoptionTest(unittest.TestCase):
    def test_all_add_up_the_same_answers(self):
        with Servers() as servers:
            self.assertEqual(len(servers.addresses), _SHARDS)
            before = count_words("before", "word-1", servers.addresses)
            self.assertEqual(len(before.stdout.splitlines()), 111)  # word-1, word-10 to word-19 and word-100 to word-199
            self.assertEqual(before.stderr, "")
            for program in _MOVED:
                moved = count_words(program, "word-1", servers.addresses)
                self.assertEqual((moved.stdout, moved.stderr), (before.stdout, ""), program)

    def test_the_example_of_the_readme_asks_them_too(self):
        with Servers() as servers:
            fan_out = subprocess.run([_PROGRAMS / "fan_out", *servers.addresses[:4]], capture_output=True, text=True,
                                     timeout=_PATIENCE, check=True)
            *shards, end = fan_out.stdout.splitlines()
            self.assertEqual(sorted(shards), [f"shard {shard}: 1000 words" for shard in range(4)])
            self.assertEqual(end, "4 of 4 shards: OK")

    def test_all_go_on_without_a_shard_and_name_it(self):
        with Servers() as servers:
            whole = count_words("before", "word", servers.addresses)
            servers.addresses[3] = "unix:/nobody/listens/here"
            before = count_words("before", "word", servers.addresses)
            self.assertNotEqual(before.stdout, whole.stdout)
            for program in _MOVED:
                moved = count_words(program, "word", servers.addresses)
                self.assertEqual(moved.stdout, before.stdout, program)
                self.assertRegex(moved.stderr, r"\Ashard 3: .+\n\Z", program)

    def test_the_moves_change_few_lines_and_the_document_says_how_many(self):
        new, gone = new_and_gone("before.cc", "after.cc")
        self.assertLessEqual(new, 20)
        self.assertIn(f"{new} lines are new, and {gone} go", _DOCUMENT)
        new, _ = new_and_gone("before.cc", "endpoint.cc")
        self.assertIn(f"how a channel is made: {new} lines", _DOCUMENT)
        self.assertNotIn("sluice", (_EXAMPLE / "before.cc").read_text().lower())

    def test_the_code_of_the_document_is_that_of_the_programs(self):
        programs = [(_EXAMPLE / f"{name}.cc").read_text() for name in ("after", "coroutine", "endpoint")]
        snippets = re.findall(r"```cpp\n(.*?)```", _DOCUMENT, re.S)
        self.assertTrue(snippets)
        for snippet in snippets:
            self.assertTrue(any(snippet in program for program in programs), snippet)


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv[1])
    _MOVED = sys.argv[2:]
    if "after" not in _MOVED:
        sys.exit("usage: adoption_test.py FOLDER_OF_PROGRAMS after MOVED...")
    unittest.main(argv=sys.argv[:1], verbosity=2)
