"""Runs incast.tcl in ns-2 (package ns2), one process per run."""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile

_SCRIPT = pathlib.Path(__file__).with_name("incast.tcl")
_DUPLICATE_ACKS = 3


def installed():
    return shutil.which("ns") is not None


@dataclasses.dataclass
class Run:
    settings: dict
    goodput: float  # Mbit/s of payload
    time_ms: float
    blocks: int
    left: int  # workers whose response was not complete when the time was up
    drops: int
    timeouts: int
    resent: int
    sent: int
    block_timeouts: list  # for each block that ended
    duplicate_acks: list  # of the worker at each timeout; empty without count_acks
    windows: list  # of all workers at the start of each block, lists of packets; empty without record_windows
    samples: list  # (s, acknowledged bytes, timeouts) so far, every sample_every; empty without record_samples

    @property
    def full_losses(self):
        """Timeouts without a duplicate ACK: full window losses, and lost ends of a response. FLT of Chen et al. are among these."""
        return sum(1 for count in self.duplicate_acks if count == 0)

    @property
    def lacks_of_acks(self):
        """Timeouts with too little feedback: LAT."""
        return sum(1 for count in self.duplicate_acks if 0 < count < _DUPLICATE_ACKS)


def _fields(line):
    return {name: float(value) for name, value in (field.split("=") for field in line.split())}


def _duplicate_acks(path):
    """Returns the number of duplicate ACKs of each flow when its nrexmit_ grew. A timeout resets dupacks_ just
    before."""
    latest, before, counts = {}, {}, []
    for line in path.read_text().splitlines():
        time, node, port, _, _, name, value = line.split()
        flow = node, port
        if name == "dupacks_":
            if value == "0":
                before[flow] = (time, latest.get(flow, 0))
            latest[flow] = int(value)
        elif value != "0":
            reset_time, count = before.get(flow, (None, 0))
            counts.append(count if reset_time == time else latest.get(flow, 0))
    return counts


def _lines_of_numbers(path):
    return [[float(number) for number in line.split()] for line in path.read_text().splitlines()]


def run(count_acks=False, record_windows=False, record_samples=False, **settings):
    """Makes one run with settings of incast.tcl."""
    with tempfile.TemporaryDirectory() as folder:
        trace, windows, samples = (pathlib.Path(folder, name) for name in ("trace", "windows", "samples"))
        files = {"trace": trace} if count_acks else {}
        if record_windows:
            files["windows"] = windows
        if record_samples:
            files["samples"] = samples
        command = ["ns", _SCRIPT, *(f"{name}={value}" for name, value in (settings | files).items())]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0 or not result.stdout:
            raise RuntimeError(f"{command}: {result.stderr.strip() or 'no output'}")
        *blocks, end = [_fields(line) for line in result.stdout.splitlines()]
        counted = [block["timeouts"] for block in blocks]
        return Run(
            settings=settings,
            goodput=end["goodput"],
            time_ms=end["time_ms"],
            **{name: int(end[name]) for name in ("blocks", "left", "drops", "timeouts", "resent", "sent")},
            block_timeouts=[int(after - before) for before, after in zip([0, *counted], counted)],
            duplicate_acks=_duplicate_acks(trace) if count_acks else [],
            windows=_lines_of_numbers(windows) if record_windows else [],
            samples=_lines_of_numbers(samples) if record_samples else [],
        )


def run_all(settings, **options):
    """Makes a run for each of `settings`, one at a time per available core. Returns the results in the order of
    `settings`."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda one: run(**options, **one), settings))
