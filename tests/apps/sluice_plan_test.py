"""sluice-plan as its users meet it. Run as: sluice_plan_test.py PATH_OF_SLUICE_PLAN [unittest arguments]."""

import json
import subprocess
import sys
import unittest

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


def table_rows(*flags):
    """The rows of the table as lists of words, without its head and the advice below it."""
    result = run(*flags)
    assert result.returncode == 0, result.stderr
    table, _, advice = result.stdout.partition("\n\n")
    return [line.split() for line in table.splitlines()[1:]], advice


class JsonTest(unittest.TestCase):
    def test_paper_numbers_of_10_kb_srus(self):
        fifteen = plan(*FRESH, "--workers", "15", "--sru", "10000")
        self.assertEqual(
            {key: fifteen[key] for key in ("sru_packets", "wnd_max", "n", "batches", "applicable")},
            {"sru_packets": 10, "wnd_max": 6, "n": 5, "batches": 3, "applicable": True})
        self.assertAlmostEqual(fifteen["sru_time_s"], 0.0018664, places=9)
        self.assertAlmostEqual(fifteen["slot_s"], 0.002, places=9)
        self.assertAlmostEqual(fifteen["block_time_s"], 0.0058864, places=9)
        self.assertAlmostEqual(fifteen["goodput_bps"] / 1e6, 203.86, places=2)
        self.assertNotIn("reason", fifteen)
        self.assertAlmostEqual(plan(*FRESH, "--workers", "16", "--sru", "10000")["goodput_bps"] / 1e6, 162.30, places=2)

    def test_paper_numbers_of_a_1_mb_block(self):
        block = plan(*FRESH, "--workers", "25", "--block", "1000000")
        self.assertEqual((block["sru_packets"], block["wnd_max"], block["n"]), (40, 24, 1))
        self.assertAlmostEqual(block["goodput_bps"] / 1e6, 106.87, places=2)

    def test_not_applicable_says_why_and_by_how_much(self):
        block = plan(*FRESH, "--workers", "21", "--block", "1000000")
        self.assertEqual((block["sru_packets"], block["wnd_max"], block["n"], block["batches"]), (48, 31, 0, 0))
        self.assertIs(block["applicable"], False)
        self.assertEqual(block["goodput_bps"], 0)
        self.assertIsNone(block["block_time_s"])
        self.assertIn("240 too many", block["reason"])
        self.assertGreater(block["rolling_goodput_bps"], 0)

    def test_goodput_of_a_block_is_that_of_its_bytes(self):
        block = plan(*FRESH, "--workers", "60", "--block", "1000001")  # SRUs of 16667 bytes, the last one shorter
        self.assertEqual(block["sru_bytes"], 16667)
        self.assertAlmostEqual(block["goodput_bps"] * block["block_time_s"], 8 * 1000001, places=3)

    def test_persistent_connections_count_the_whole_sru(self):
        sru = plan(*PERSISTENT, "--workers", "16", "--sru", "10000")
        self.assertEqual((sru["wnd_max"], sru["n"], sru["batches"]), (10, 3, 6))
        self.assertGreater(sru["rolling_goodput_bps"], 880e6)
        self.assertGreater(sru["collapse_timeout_probability"], 0.05)
        self.assertLess(sru["collapse_goodput_bps"], sru["rolling_goodput_bps"] / 4)

    def test_buffer_of_packets(self):
        packets = ["30p" if flag == "32000" else flag for flag in FRESH]
        self.assertEqual(plan(*packets, "--workers", "15", "--sru", "10000")["n"], 5)

    def test_mtu_sets_the_sizes_of_a_packet(self):
        jumbo = plan("--mtu", "9000", "--workers", "2", "--sru", "8949")
        self.assertEqual(jumbo["sru_packets"], 2)


class TableTest(unittest.TestCase):
    def test_teeth_are_marked(self):
        rows, _ = table_rows(*FRESH, "--workers", "17", "--sru", "10000")
        self.assertEqual([row[0] for row in rows], ["1", "5", "6", "10", "11", "15", "16", "17"])
        marks = {row[0]: mark for row in rows for mark in ("peak", "trough", "rise") if mark in row}
        self.assertEqual(marks, {"5": "peak", "6": "trough", "10": "peak", "11": "trough", "15": "peak", "16": "trough"})

    def test_rise_is_where_smaller_srus_let_more_workers_answer(self):
        rows, _ = table_rows(*FRESH, "--workers", "40", "--block", "1000000")
        rises = [row[0] for row in rows if "rise" in row]
        self.assertIn("22", rises)  # the first N with n = 1

    def test_all_prints_every_row(self):
        rows, _ = table_rows(*FRESH, "--workers", "17", "--sru", "10000", "--all")
        self.assertEqual([row[0] for row in rows], [str(n) for n in range(1, 18)])

    def test_advice_where_everything_fits(self):
        _, advice = table_rows(*FRESH, "--workers", "5", "--sru", "10000")
        self.assertIn("No incast problem", advice)

    def test_advice_past_a_tooth_names_a_better_n_that_the_model_agrees_with(self):
        _, advice = table_rows(*FRESH, "--workers", "16", "--sru", "10000")
        self.assertIn("has the incast problem", advice)
        words = advice.split("Next better: N = ")[1].split()
        now = plan(*FRESH, "--workers", "16", "--sru", "10000")["goodput_bps"]
        better = plan(*FRESH, "--workers", words[0], "--sru", "10000")["goodput_bps"]
        self.assertGreater(better, 1.05 * now)

    def test_advice_names_a_better_sru_that_the_model_agrees_with(self):
        _, advice = table_rows(*FRESH, "--workers", "100", "--sru", "10000")
        sru = advice.split("Better SRU size: ")[1].split()[0]
        now = plan(*FRESH, "--workers", "100", "--sru", "10000")["goodput_bps"]
        self.assertGreater(plan(*FRESH, "--workers", "100", "--sru", sru)["goodput_bps"], 1.05 * now)

    def test_advice_where_the_slots_are_not_applicable(self):
        _, advice = table_rows(*FRESH, "--workers", "21", "--block", "1000000")
        self.assertIn("not applicable", advice)
        self.assertIn("240 too many", advice)


class BadInputTest(unittest.TestCase):
    def refused(self, wanted, *flags):
        result = run(*flags)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(result.stdout, "")
        for text in wanted:
            self.assertIn(text, result.stderr)

    def test_field_value_and_bound_are_named(self):
        sru = ["--workers", "4", "--sru", "10000"]
        self.refused(["workers", "0", "from 1 to 1048576"], "--workers", "0", "--sru", "10000")
        self.refused(["workers", "-3", "from 1 to 1048576"], "--workers", "-3", "--sru", "10000")
        self.refused(["workers", "1048577"], "--workers", "1048577", "--block", "10000000")
        self.refused(["workers", "many"], "--workers", "many", "--sru", "10000")
        self.refused(["sru", "0", "from 1 to 4294967296"], "--workers", "4", "--sru", "0")
        self.refused(["sru", "8589934592", "4294967296"], "--workers", "4", "--sru", "8gb")
        self.refused(["sru", "ten"], "--workers", "4", "--sru", "ten")
        self.refused(["block is 0", "from 4"], "--workers", "4", "--block", "0")
        self.refused(["block is 3", "from 4"], "--workers", "4", "--block", "3")
        self.refused(["capacity", "0"], *sru, "--capacity", "0")
        self.refused(["capacity", "nan"], *sru, "--capacity", "nan")
        self.refused(["capacity", "10mbps"], *sru, "--capacity", "10mbps")
        self.refused(["buffer", "-1"], *sru, "--buffer=-1")
        self.refused(["buffer", "0"], *sru, "--buffer", "0")
        self.refused(["propagation_rtt is 0", "from 1ns to 10s"], *sru, "--rtt", "0us")
        self.refused(["propagation_rtt is 11s", "from 1ns to 10s"], *sru, "--rtt", "11s")
        self.refused(["frame_bytes is 900", "at least packet_payload_bytes", "1000"],
                     *sru, "--frame", "900", "--packet_payload", "1000")
        self.refused(["initial_window", "0"], *sru, "--initial_window", "0")
        self.refused(["initial_window_packets is 70000", "65536"], *sru, "--initial_window", "70000")
        self.refused(["timer_granularity is 0"], *sru, "--timer_granularity", "0s")
        self.refused(["connections", "lazy"], *sru, "--connections", "lazy")
        self.refused(["mtu", "40"], *sru, "--mtu", "40")

    def test_exactly_one_size_is_needed(self):
        self.refused(["--sru", "--block"], "--workers", "4")
        self.refused(["--sru", "--block"], "--workers", "4", "--sru", "1", "--block", "4")
        self.refused(["--workers"], "--sru", "10000")
        self.refused(["--srv"], "--workers", "4", "--sru", "10000", "--srv", "1")


class ShapeTest(unittest.TestCase):
    def test_help_and_version(self):
        for flag in ("--help", "--version"):
            result = run(flag)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("sluice-plan", result.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
