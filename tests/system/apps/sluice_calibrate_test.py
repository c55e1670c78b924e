"""Tests sluice-calibrate as users run it, over loopback. Run as: sluice_calibrate_test.py FOLDER_OF_PROGRAMS."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path()
_PATIENCE_S = 60
_NOT_DETERMINED = 3


def run(*flags):
    return subprocess.run(
        [PROGRAMS / "sluice-calibrate", *map(str, flags)],
        capture_output=True, text=True, timeout=2 * _PATIENCE_S, check=False,
    )  # fmt: skip


@contextlib.contextmanager
def worker(folder, *flags):
    """Yields the addresses of a worker that serves until the `with` block ends."""
    ready = pathlib.Path(folder) / "ready"
    ready.unlink(missing_ok=True)
    argv = [PROGRAMS / "sluice-worker", "--listen", "127.0.0.1:0,127.0.0.1:0", "--data", folder, "--ready-file", ready]
    with subprocess.Popen([*map(str, argv), *flags], stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the worker does not serve: {process.poll()}")
                time.sleep(0.01)
            yield ready.read_text().split()
        finally:
            process.kill()


class CommandLineTest(unittest.TestCase):
    def test_refuses_what_was_written_wrong(self):
        for flags, message in (
            ([], "workers lists 0 addresses; it must list 1 to "),
            (["--workers", "here"], '"here" is not host:port'),
            (["--workers", "a:1", "--max-in-flight", "1kb"], "max_in_flight is 1024 bytes; it must be from 65536 to 8388608"),
            (["--workers", "a:1", "--max-in-flight", "9mb"], "max_in_flight is 9437184 bytes; it must be from"),
            (["--workers", "a:1", "--max-in-flight", "some"], 'max_in_flight: "some" is not a size'),
            (["--workers", "a:1", "--progress", "maybe"], 'progress: "maybe" is none of auto, always and never'),
            (["--workers", "a:1", "--json", "/no/such/x"], 'json: "/no/such/x": there is no folder /no/such'),
            (["--workers", "a:1", "--profile", "/no/such/x"], "profile: "),
            (["--workers", "a:1", "--plot", "/no/such/x"], "plot: "),
            (["--wokers", "a:1"], "--wokers"),
        ):
            result = run(*flags)
            self.assertEqual(result.returncode, 2, message)
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_explains_itself(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        for flag in ("--workers", "--max_in_flight", "--json", "--profile", "--plot", "--progress"):
            self.assertIn(flag, result.stdout)


class LoopbackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_says_that_loopback_has_no_bottleneck_and_measures_the_rest(self):
        report_file, profile_file = self.folder / "report.json", self.folder / "link.json"
        with worker(self.folder) as addresses:
            result = run("--workers", ",".join(addresses), "--json", report_file, "--profile", profile_file)
        self.assertEqual(result.returncode, _NOT_DETERMINED, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^capacity +not determined: the workers are on this host")
        self.assertRegex(result.stdout, r"(?m)^buffer +not determined: the workers are on this host")
        report = json.loads(report_file.read_text())
        figures = {figure["name"]: figure for figure in report["figures"]}
        self.assertEqual(report["workers"], addresses)
        self.assertNotIn("value", figures["buffer"])
        self.assertLess(0, figures["rtt_min"]["value"])
        lateness = [figures[f"timer_lateness_{name}"]["value"] for name in ("p50", "p90", "p99", "p999", "max")]
        self.assertEqual(lateness, sorted(lateness))
        self.assertLess(0, lateness[0])
        link = json.loads(profile_file.read_text())["link"]
        self.assertEqual(link, report["link"])
        self.assertNotIn("buffer", link)

    def test_the_profile_is_a_config_of_the_aggregator(self):
        profile = self.folder / "link.json"
        with worker(self.folder) as addresses:
            run("--workers", addresses[0], "--profile", profile)
            checked = subprocess.run(
                [PROGRAMS / "sluice-aggregator", "--config", profile, "--workers", addresses[0],
                 "--listen", "127.0.0.1:0", "--check-config"],
                capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
            )  # fmt: skip
        self.assertEqual((checked.returncode, checked.stdout), (0, "config ok\n"), checked.stderr)

    def test_names_a_worker_that_answers_no_probes(self):
        with worker(self.folder, "--no-probe") as addresses:
            result = run("--workers", addresses[0])
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"worker {addresses[0]}: it is older than sluice-calibrate, or was started with --no-probe", result.stderr)

    def test_ends_with_an_interrupt(self):
        with worker(self.folder) as addresses:
            argv = [PROGRAMS / "sluice-calibrate", "--workers", addresses[0], "--progress", "always", "--json", self.folder / "x"]
            process = subprocess.Popen([*map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            read = b""
            while b"connecting to workers" not in read:  # the bar is shown, so the program catches signals by now
                byte = os.read(process.stderr.fileno(), 1)
                self.assertTrue(byte, read)
                read += byte
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=_PATIENCE_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(b"sluice-calibrate: interrupted", err)
        self.assertEqual(out, b"")
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
