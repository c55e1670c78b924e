"""Tests sluice-diagnose as users run it. Run as: sluice_diagnose_test.py PROGRAM [unittest arguments]."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path()
EXIT_CODES = {"no": 0, "not_sure": 3, "yes": 4}


def run(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=60, check=False)


class DiagnoseTest(unittest.TestCase):
    def test_refuses_a_wrong_command_line(self):
        for flags, complaint in (
            (["--duration", "0.5s"], "duration is 500 ms; it must be from 1s to 1h"),
            (["--duration", "soon"], "duration: "),
            (["--port", "70000"], "--port"),
            (["--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
            (["--progress", "often"], "progress: "),
        ):
            result = run(*flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(complaint, result.stderr)

    def test_is_not_sure_about_a_port_without_traffic(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            result = run("--duration", "1s", "--port", "1", "--json", file)
            self.assertEqual(result.returncode, 3, result.stderr)
            first, *rest = result.stdout.splitlines()
            self.assertEqual(first, "Not sure: there was not enough traffic to other hosts; loopback is left out. Run it under load.")
            self.assertTrue(any(line.startswith("TCP of this host: ") for line in rest), rest)
            report = json.loads(file.read_text())
        self.assertEqual((report["verdict"], report["reason"]), ("not_sure", "little_traffic"))
        self.assertEqual(report["connections"], 0)
        self.assertGreaterEqual(report["watched_seconds"], 1)

    def test_prints_only_json_to_stdout(self):
        result = run("--duration", "1s", "--json", "-")
        self.assertEqual(EXIT_CODES[json.loads(result.stdout)["verdict"]], result.returncode)

    def test_an_interrupt_ends_the_watch_with_a_verdict(self):
        flags = ["--duration", "1h", "--port", "1", "--progress", "always"]
        with subprocess.Popen([PROGRAM, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                self.assertIn("watching", process.stderr.read(200))
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                output, _ = process.communicate(timeout=60)
                self.assertLess(time.monotonic() - began, 30)
            finally:
                process.kill()
        self.assertEqual(process.returncode, 3)
        self.assertTrue(output.startswith("Not sure: "), output)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1))
    unittest.main()
