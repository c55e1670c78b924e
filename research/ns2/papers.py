"""The networks of the papers for sluice-plan and ns-2, and the generation of their figures. sluice-plan computes the
model, not this module."""

import csv
import dataclasses
import hashlib
import io
import pathlib
import subprocess
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import picture

# "Solving the TCP-incast Problem with Application-Level Scheduling", V: 1 Gbit/s, 0.1 ms, a buffer of 32 KB (32,000
# bytes), packets of 1000 bytes plus 40 of headers, timers of 1 ms. The defaults of incast.tcl are the same.
LOSSLESS_PLAN = (
    "--capacity", "1gbit", "--rtt", "100us", "--packet_payload", "1000", "--frame", "1040", "--ack", "40", "--jitter",
    "20us", "--initial_window", "1", "--connections", "fresh")
LOSSLESS_BUFFER = ("--buffer", "32000")
LOSSLESS_TIMER = ("--timer_granularity", "1ms")
FIXED_SRU = 10_000
BLOCK = 1_000_000

# "Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems", 3.1: SRUs of 256 KB, one block
# after another over persistent connections, no limited transmit. Windows of 20 packets and packets of 1000 bytes are
# ns-2's defaults.
STORAGE = {"sru": 262_144, "buffer_packets": 64, "max_window": 20, "limited_transmit": 0, "blocks": 1_000_000}

# "Comprehensive Understanding of TCP Incast Problem", V: 1 Gbit/s, 0.1 ms, 128 KB, 64 KB from each worker, packets of
# 1.5 KB. Each host needs a random time for each packet. Without it a simulator makes the flows move in step.
UNDERSTANDING = {"sru": 65_536, "payload": 1460, "buffer": 131_072, "overhead": 1e-5, "initial_window": 2, "blocks": 1_000_000}
UNDERSTANDING_PLAN = (
    "--capacity", "1gbit", "--rtt", "100us", "--packet_payload", "1460", "--frame", "1500", "--ack", "40")


class Plan:
    """Runs sluice-plan, and returns rows of numbers."""

    def __init__(self, program):
        self._program = program

    def rows(self, *flags):
        command = [self._program, *map(str, flags), "--csv"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr.strip()}")
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(result.stdout))]

    def row(self, *flags):
        return self.rows(*flags)[-1]

    def lossless(self, workers, sru=None, buffer=32_000, timer="1ms"):
        """Returns the schedule of the first paper; for a data block if there is no SRU."""
        size = ("--sru", sru) if sru else ("--block", BLOCK)
        return self.row(*LOSSLESS_PLAN, "--buffer", buffer, "--timer_granularity", timer, "--workers", workers, *size)


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text


def slots(row):
    """Returns the schedule of a plan's row as settings of incast.tcl."""
    return {"start": "slots", "slot": row["slot_s"], "batches": int(row["batches"]), "sru": int(row["sru_bytes"])}


@dataclasses.dataclass
class Figure:
    """A figure or a table. The results of the simulation go to a CSV, and the SVG uses only that CSV and
    sluice-plan. So it can be drawn again without ns-2, with the same result."""

    simulate: typing.Callable  # takes the plan; returns rows
    draw: typing.Callable | None = None  # takes the plan and the rows of the CSV; returns a figure of matplotlib. None for a table.

    def make(self, name, plan, folder, simulate=True):
        csv_path = folder / f"{name}.csv"
        if simulate:
            write_csv(csv_path, self.simulate(plan))
        if self.draw:
            figure = self.draw(plan, read_csv(csv_path))
            picture.save(figure, folder / f"{name}.svg")
            picture.pyplot().close(figure)


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})


def read_csv(path):
    with open(path, newline="") as file:
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]


def record(folder):
    """The digests of the CSVs, for `sha256sum -c`: a digit that was changed by hand is seen."""
    digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.glob("*.csv"))]
    (folder / "SHA256SUMS").write_text("".join(digests))


def column(rows, key, factor=1.0):
    """Returns the numbers of a column. An empty cell is NaN, which is not drawn."""
    return [float("nan") if row[key] == "" else row[key] * factor for row in rows]


def by_curve(rows, key="curve"):
    """Yields the rows of each curve in the order of the CSV, with its colour and marker."""
    names = dict.fromkeys(row[key] for row in rows)
    assert len(names) <= len(picture.COLOURS), names
    for name, colour, marker in zip(names, picture.COLOURS, picture.MARKERS):
        yield name, [row for row in rows if row[key] == name], colour, marker


def draw_goodput(_, rows, x="workers", label="workers N", base=2, title=None):
    """Draws goodput over a column, one line per curve."""
    figure, axes = picture.pyplot().subplots(figsize=(7.5, 4.2))
    for name, own, colour, marker in by_curve(rows):
        axes.plot(column(own, x), column(own, "goodput_mbps"), color=colour, marker=marker, label=name)
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("goodput, Mbit/s")
    axes.legend(title=title, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
