#!/usr/bin/env python3
"""Checks that the figures of docs/start/compare.md are those of the pages with the measurements."""

import pathlib
import re
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_PAGE = (_REPOSITORY / "docs/start/compare.md").read_text()
# The columns of a table of the page, by their numbers in the table that has the measurements.
_SOURCES = [
    ("On kernel TCP", 0, "research/measurements.md", "tests/testbed/alternatives --caps 2,4,8,16", (1, 3, 4, 5, 7, 8)),
    ("On kernel TCP", 1, "research/measurements.md", "tests/testbed/alternatives --think 10 --caps 2,8,16,32", (1, 3, 4, 5, 7, 8)),
    ("In simulation", 0, "research/simulation.md", "## `alternatives`: by the fan-in", (1, 3, 5)),
]


def tables(text):
    """Returns the rows of each table, without its heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in block.splitlines()]
        found.append({row[0]: row for row in rows[2:]})
    return found


class CompareTest(unittest.TestCase):
    def test_its_figures_are_those_of_the_measurements(self):
        for heading, number, source, before, columns in _SOURCES:
            section = re.search(rf"^## {heading}.*?(?=^## |\Z)", _PAGE, re.M | re.S)[0]
            measured = tables((_REPOSITORY / source).read_text().partition(before)[2])[0]
            table = tables(section)[number]
            self.assertGreater(len(table), 4)
            for name, row in table.items():
                with self.subTest(f"{heading} {name}"):
                    self.assertEqual(row[1:], [measured[name][column] for column in columns])

    def test_the_readme_has_the_same_two_rows(self):
        readme = tables((_REPOSITORY / "README.md").read_text())
        ours = next(table for table in readme if "plain gRPC" in table)
        theirs = tables(_PAGE.partition("## On kernel TCP")[2])[0]
        for row, measured in (("plain gRPC", "nothing"), ("with Sluice", "Sluice")):
            mbps, drops, timeouts = (theirs[measured][column] for column in (1, 3, 4))
            self.assertEqual(ours[row][1:], [f"{mbps} Mbit/s", drops, timeouts])

    def test_the_cost_of_a_call_is_the_newest_measurement(self):
        measured = (_REPOSITORY / "research/measurements.md").read_text()
        call, by_hand, held = re.search(
            r"([0-9.]+) µs beside\s+[0-9.]+ with nothing held \(by hand ([0-9.]+)\)\. With every response held, `[^`]*`: "
            r"[0-9.]+ \(([0-9.]+ to [0-9.]+) times by hand\)", measured).groups()
        ratio = f"{float(call) / float(by_hand):.2f} times the CPU time"
        pages = [_PAGE, (_REPOSITORY / "docs/start/what-and-why.md").read_text()]
        for page in (*pages, (_REPOSITORY / "README.md").read_text()):
            self.assertIn(ratio, " ".join(page.split()))
        for page in pages:
            self.assertIn(f"{held} times", " ".join(page.split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
