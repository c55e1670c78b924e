"""Runs sluice-plan for its tests. A test sets PROGRAM first."""

import csv
import io
import json
import subprocess

PROGRAM = ""

# The link of the source paper's own numbers.
PAPER = [
    "--capacity", "1gbit", "--buffer", "32000", "--rtt", "100us", "--packet_payload", "1000", "--frame", "1040",
    "--ack", "40", "--timer_granularity", "1ms", "--jitter", "20us", "--initial_window", "1",
]
FRESH = PAPER + ["--connections", "fresh"]
PERSISTENT = PAPER + ["--connections", "persistent"]


def run(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=60, check=False)


def plan(*flags):
    result = run(*flags, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def csv_rows(*flags):
    """The rows of --csv, with numbers as numbers."""
    result = run(*flags, "--csv")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    texts = ("reason", "applicable", "verdict", "unscheduled_reason")
    return [{key: value if key in texts else float(value or "nan") for key, value in row.items()} for row in rows]


def sections(*flags):
    """The verdict, the table, and what follows it: "" without --batches."""
    result = run(*flags)
    assert result.returncode == 0, result.stderr
    verdict, table, *advice = result.stdout.split("\n\n")
    return verdict, table, "".join(advice)


def table_rows(*flags):
    """The rows of the table as lists of words, without its heading."""
    return [line.split() for line in sections(*flags)[1].splitlines()[1:]]


def batch_rows(*flags):
    """The rows of the table of batches, and the advice on them."""
    _, table, advice = sections(*flags, "--batches")
    return [line.split() for line in table.splitlines()[1:]], advice
