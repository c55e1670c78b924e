#!/usr/bin/env python3
"""The fan-out of examples/adoption before and after it was moved to Sluice: adoption_test.py FOLDER_OF_PROGRAMS. Both
give the same answers from the same plain servers, and the move is small."""

import difflib
import pathlib
import subprocess
import sys
import unittest

_EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/adoption"
_PROGRAMS = pathlib.Path()
_PATIENCE = 60  # seconds that a test waits for what has to happen
_SHARDS = 40
_CHANGED_LINES = 20


class Servers:
    """Plain servers that know nothing of Sluice, until the with-block ends."""

    def __enter__(self):
        argv = [_PROGRAMS / "adoption-server", str(_SHARDS)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addresses = self._process.stdout.readline().split()
        return self

    def __exit__(self, *_):
        self._process.communicate(timeout=_PATIENCE)  # it serves until its input ends


def count_words(program, prefix, addresses):
    argv = [_PROGRAMS / f"adoption-{program}", prefix, *addresses]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE, check=True)


class AdoptionTest(unittest.TestCase):
    def test_both_add_up_the_same_answers(self):
        with Servers() as servers:
            self.assertEqual(len(servers.addresses), _SHARDS)
            before = count_words("before", "word-1", servers.addresses)
            after = count_words("after", "word-1", servers.addresses)
        self.assertEqual(before.stderr + after.stderr, "")
        self.assertEqual(len(before.stdout.splitlines()), 111)  # word-1, word-10 to word-19, word-100 to word-199
        self.assertEqual(before.stdout, after.stdout)

    def test_both_go_on_without_a_shard_and_name_it(self):
        with Servers() as servers:
            whole = count_words("before", "word", servers.addresses)
            servers.addresses[3] = "unix:/nobody/listens/here"
            before = count_words("before", "word", servers.addresses)
            after = count_words("after", "word", servers.addresses)
        for result in (before, after):
            self.assertRegex(result.stderr, r"\Ashard 3: .+\n\Z")
        self.assertEqual(before.stdout, after.stdout)
        self.assertNotEqual(before.stdout, whole.stdout)

    def test_the_move_changes_few_lines(self):
        before, after = ((_EXAMPLE / name).read_text().splitlines() for name in ("before.cc", "after.cc"))
        new = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
        self.assertLessEqual(len(new), _CHANGED_LINES, "\n".join(new))
        self.assertLess(len(after), len(before))
        self.assertNotIn("sluice", "\n".join(before).lower())


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main(verbosity=2)
