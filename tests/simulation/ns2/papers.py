"""The networks of the papers, for sluice-plan and for ns-2, and how their figures are written. The model is not computed
here: sluice-plan does that."""

import csv
import io
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_ROOT / "tools/sluice_plan"))

# "Solving the TCP-incast Problem with Application-Level Scheduling", V: 1 Gbit/s, 0.1 ms, 32 KB of 1000 bytes, packets of 1000
# bytes with 40 of headers, timers of 1 ms. The defaults of incast.tcl are the same.
LOSSLESS_PLAN = (
    "--capacity", "1gbit", "--rtt", "100us", "--packet_payload", "1000", "--frame", "1040", "--ack", "40", "--jitter",
    "20us", "--initial_window", "1", "--connections", "fresh")
LOSSLESS_BUFFER = ("--buffer", "32000")
LOSSLESS_TIMER = ("--timer_granularity", "1ms")
FIXED_SRU = 10_000
BLOCK = 1_000_000

# "Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems", 3.1: SRUs of 256 KB, one block after
# the other over connections that stay, no limited transmit. Windows of 20 packets and packets of 1000 bytes are ns-2's own.
STORAGE = {"sru": 262_144, "buffer_packets": 64, "max_window": 20, "limited_transmit": 0, "blocks": 1_000_000}

# "Comprehensive Understanding of TCP Incast Problem", V: 1 Gbit/s, 0.1 ms, 128 KB, 64 KB from each, packets of 1.5 KB. The random
# time that a host takes for each packet keeps flows from moving in step, which a simulator without it makes of them.
UNDERSTANDING = {"sru": 65_536, "payload": 1460, "buffer": 131_072, "overhead": 1e-5, "initial_window": 2, "blocks": 1_000_000}
UNDERSTANDING_PLAN = (
    "--capacity", "1gbit", "--rtt", "100us", "--packet_payload", "1460", "--frame", "1500", "--ack", "40")


class Plan:
    """sluice-plan, as rows of numbers."""

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
        """The schedule of the first paper; of a data block without an SRU."""
        size = ("--sru", sru) if sru else ("--block", BLOCK)
        return self.row(*LOSSLESS_PLAN, "--buffer", buffer, "--timer_granularity", timer, "--workers", workers, *size)


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text


def slots(row):
    """The schedule of a row of the plan, as settings of incast.tcl."""
    return {"start": "slots", "slot": row["slot_s"], "batches": int(row["batches"]), "sru": int(row["sru_bytes"])}


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
