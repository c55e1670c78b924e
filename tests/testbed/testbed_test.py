#!/usr/bin/env python3
"""Tests of the test network: testbed_test.py CASE BUILD. Exit code 77: the machine cannot hold it; the reason is printed."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

_RUN = pathlib.Path(__file__).with_name("run")
_TOKEN = "SLUICE_TESTBED_TEST"
_SKIP = 77

_KEYS = """policy workers sru_bytes blocks rate_bps buffer_bytes congestion_control think_ms goodput_bps block_p50_ms
    block_p99_ms switch_drops tcp_timeouts tcp_retransmits rpc_timeouts bad_bytes model_goodput_bps""".split()


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(_SKIP)


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def finish(process):
    """Output of a run that must succeed; skips with its reason where the machine cannot hold the network."""
    output, errors = process.communicate()
    if process.returncode == _SKIP:
        skip(errors.split("SKIPPED: ")[-1].strip())
    check(process.returncode == 0, f"exit code {process.returncode}:\n{errors}\n{output}")
    return output


def start(*arguments, before=(), **options):
    return subprocess.Popen([*before, str(_RUN), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def flags(_build):
    for arguments, complaint in (
        (["--policy", "magic"], "'magic' is not a policy"),
        (["--rate", "fast"], "'fast' is not a rate"),
        (["--rate", "0mbit"], "must be above 0"),
        (["--buffer", "32kbit"], "'32kbit' is not a size"),
        (["--workers", "0"], "'0' is not a number above 0"),
        (["--think", "-1"], "must be 0 or more"),
        (["--json", "/no/such/folder/result.json"], "no folder"),
    ):
        process = start(*arguments)
        _, errors = process.communicate()
        check(process.returncode == 2 and complaint in errors, f"{arguments}: {process.returncode}: {errors}")


def network_collapses(_build):
    all_at_once, few_at_once = json.loads(finish(start("--self-check", "--blocks", "10")))
    check(all_at_once["congestion_control"] == few_at_once["congestion_control"] == "cubic", "CUBIC was not read back")
    check(few_at_once["peak_backlog_bytes"] <= 32 * 1024, "the buffer holds more than it was given")


def two_at_once(_build):
    # Slowly, so that two of them do not wait for the processor; slower yet, a full buffer would delay acknowledgements
    # so much that TCP sends tail loss probes into it.
    runs = [start("--self-check", "--blocks", "3", "--rate", "50mbit") for _ in range(2)]
    for run in runs:
        finish(run)


def without_root(_build):
    before = []
    if os.geteuid() == 0:
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        if not shutil.which("setpriv") or subprocess.run([*nobody, "test", "-r", str(_RUN)], check=False).returncode:
            skip(f"user 65534 cannot read {_RUN}")
        before = nobody
    finish(start("--self-check", "--blocks", "3", before=before, cwd="/"))


def reads(build):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        arguments = "--policy unscheduled,rolling --workers 16 --sru 10kb --blocks 5 --clients 2 --quiet".split()
        printed = finish(start(*arguments, "--build", build, "--json", str(file)))
        check(json.loads(printed) == json.loads(file.read_text()), "what is printed is not what is written")
    plain, rolling = json.loads(printed)
    for result in (plain, rolling):
        missing = [key for key in _KEYS if key not in result]
        check(not missing, f"{result['policy']}: no {missing} in the result")
        check(result["bad_bytes"] == 0 and result["errors"] == 0, f"{result['policy']}: bad data: {result}")
        check(result["blocks_read"] == 2 * 5, f"{result['policy']}: {result['blocks_read']} blocks of 10 were read")
        check(0 < result["goodput_bps"] <= result["rate_bps"], f"goodput {result['goodput_bps']} over the link's rate")
        check(result["peak_backlog_bytes"] <= result["buffer_bytes"], "the buffer holds more than it was given")
    check(plain["policy"] == "unscheduled" and plain["switch_drops"] > 0, f"no drops when all answer at once: {plain}")
    check(rolling["policy"] == "rolling" and rolling["switch_drops"] == 0, f"a schedule that drops: {rolling}")
    check(rolling["tcp_timeouts"] == 0, f"a schedule with timeouts: {rolling}")


def _ends(signum, exit_code):
    with contextlib.ExitStack() as stack:
        token = uuid.uuid4().hex
        process = start("--self-check", "--blocks", "100000", "--workers", "16", env={**os.environ, _TOKEN: token})
        stack.callback(process.kill)
        # Two outside, one inside, eight senders: the network is up.
        if not _wait_until(lambda: len(_processes_with(token)) >= 10 or process.poll() is not None, 60):
            sys.exit("FAILED: the network did not come up")
        if process.poll() is not None:
            finish(process)
            sys.exit("FAILED: the run ended before it was stopped")
        process.send_signal(signum)
        process.communicate(timeout=20)
        check(process.returncode == exit_code, f"exit code {process.returncode} where {exit_code} was due")
        gone = _wait_until(lambda: not _processes_with(token), 10)
        check(gone, f"processes outlive the run: {_processes_with(token)}")


def ends_with_interrupt(_build):
    _ends(signal.SIGINT, 130)


def ends_with_terminate(_build):
    _ends(signal.SIGTERM, 143)


def ends_when_killed(_build):
    _ends(signal.SIGKILL, -9)


def _wait_until(condition, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _processes_with(token):
    """Ids of the processes that carry the token in their environment, zombies excepted: those have none."""
    wanted = f"{_TOKEN}={token}".encode()
    found = []
    for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


_CASES = (flags, network_collapses, two_at_once, without_root, reads, ends_with_interrupt, ends_with_terminate,
          ends_when_killed)  # fmt: skip

if __name__ == "__main__":
    {case.__name__: case for case in _CASES}[sys.argv[1]](sys.argv[2])
