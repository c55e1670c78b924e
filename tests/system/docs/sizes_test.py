#!/usr/bin/env python3
"""Checks the table of sizes in docs/guides/size.md against the model: sizes_test.py SLUICE_PLAN"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

_SIZES = pathlib.Path(__file__).resolve().parents[3] / "docs/guides/size.md"
_PLAN = ""


def rows():
    found = []
    for line in _SIZES.read_text().splitlines():
        if re.match(r"\| \d+[mg]bit \|", line):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def plan(link, buffer, sru, workers):
    command = [_PLAN, "--json", "--capacity", link, "--buffer", buffer, "--sru", sru, "--workers", str(workers)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


class SizesTest(unittest.TestCase):
    def test_the_table_is_what_sluice_plan_says(self):
        self.assertGreater(len(rows()), 3)
        for link, buffer, sru, at_once, *goodputs in rows():
            few, many = (plan(link, buffer, sru, workers) for workers in (32, 256))
            self.assertEqual(int(at_once), few["n"])
            self.assertEqual(goodputs, [str(round(few["grants_goodput_bps"] / 1e6)), str(round(many["grants_goodput_bps"] / 1e6)),
                                        *(row["unscheduled_reason"].partition(" more than the buffer")[0] for row in (few, many))])


if __name__ == "__main__":
    _PLAN = sys.argv.pop(1)
    unittest.main(verbosity=2)
