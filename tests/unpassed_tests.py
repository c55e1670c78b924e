#!/usr/bin/env python3
"""Lists the skipped tests of a ctest run with their reasons, and the ends of the failed tests' output, from ctest's
JUnit report. Exits with code 0 if it lists any, and 1 otherwise."""

import pathlib
import re
import sys
import xml.etree.ElementTree

LINES_OF_A_FAILURE = 30


def reason(output):
    # Sluice's scripts print "SKIPPED: reason", and unittest prints "skipped 'reason'". GoogleTest prints the reason on
    # the line after "file:line: Skipped".
    match = re.search(r"^SKIPPED: (.+)$|: Skipped\n(.+)$| skipped '(.+)'$", output, re.MULTILINE)
    return next(filter(None, match.groups())) if match else output.strip()[-300:] or "no reason given"


def output(case):
    return case.findtext("system-out") or ""


def main(report):
    if not pathlib.Path(report).exists():
        return 1
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    skipped = [case for case in cases if case.find("skipped") is not None or case.get("status") == "disabled"]
    failed = [case for case in cases if case.find("failure") is not None]
    if skipped:
        print(f"\n*** {len(skipped)} TESTS WERE SKIPPED: what they check is NOT checked on this machine ***")
        for case in skipped:
            print(f"  {case.get('name')}: {reason(output(case))}")
    for case in failed:
        print(f"\n*** {case.get('name')} failed; the last of its lines ***")
        print("\n".join(output(case).rstrip().splitlines()[-LINES_OF_A_FAILURE:]))
    print()
    return 0 if skipped or failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
