"""sluice-plan as its users meet it. Run as: sluice_plan_test.py PATH_OF_SLUICE_PLAN [unittest arguments]."""

import importlib.util
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

import plan_program
from plan_program import FRESH, PERSISTENT, batch_rows, csv_rows, plan, run, sections, table_rows


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

    def test_has_the_verdict_of_the_text(self):
        for workers, verdict in (("1", "not needed"), ("64", "needed")):
            read = ["--capacity", "100mbit", "--buffer", "32kb", "--workers", workers, "--sru", "10kb"]
            self.assertEqual(plan(*read)["verdict"], verdict)
            self.assertTrue(run(*read).stdout.startswith(f"Sluice is {verdict}:"))

    def test_mtu_sets_the_sizes_of_a_packet(self):
        jumbo = plan("--mtu", "9000", "--workers", "2", "--sru", "8949")
        self.assertEqual(jumbo["sru_packets"], 2)


class BatchesTest(unittest.TestCase):
    def test_verdict_stays_first(self):
        plain, batches = (sections(*FRESH, "--workers", "16", "--sru", "10000", *flags)[0] for flags in ([], ["--batches"]))
        self.assertEqual(plain.splitlines()[0], batches.splitlines()[0])

    def test_teeth_are_marked(self):
        rows, _ = batch_rows(*FRESH, "--workers", "17", "--sru", "10000")
        self.assertEqual([row[0] for row in rows], ["1", "5", "6", "10", "11", "15", "16", "17"])
        marks = {row[0]: mark for row in rows for mark in ("peak", "trough", "rise") if mark in row}
        self.assertEqual(marks, {"5": "peak", "6": "trough", "10": "peak", "11": "trough", "15": "peak", "16": "trough"})

    def test_rise_is_where_smaller_srus_let_more_workers_answer(self):
        rows, _ = batch_rows(*FRESH, "--workers", "40", "--block", "1000000")
        rises = [row[0] for row in rows if "rise" in row]
        self.assertIn("22", rises)  # the first N with n = 1

    def test_all_prints_every_row(self):
        rows, _ = batch_rows(*FRESH, "--workers", "17", "--sru", "10000", "--all")
        self.assertEqual([row[0] for row in rows], [str(n) for n in range(1, 18)])

    def test_advice_past_a_tooth_names_a_better_n_that_the_model_agrees_with(self):
        _, advice = batch_rows(*FRESH, "--workers", "16", "--sru", "10000")
        words = advice.split("Next better N: ")[1].split()
        now = plan(*FRESH, "--workers", "16", "--sru", "10000")["goodput_bps"]
        better = plan(*FRESH, "--workers", words[0], "--sru", "10000")["goodput_bps"]
        self.assertGreater(better, 1.05 * now)

    def test_advice_names_a_better_sru_that_the_model_agrees_with(self):
        _, advice = batch_rows(*FRESH, "--workers", "100", "--sru", "10000")
        sru = advice.split("Better SRU size: ")[1].split()[0]
        now = plan(*FRESH, "--workers", "100", "--sru", "10000")["goodput_bps"]
        self.assertGreater(plan(*FRESH, "--workers", "100", "--sru", sru)["goodput_bps"], 1.05 * now)

    def test_advice_where_the_slots_are_not_applicable(self):
        _, advice = batch_rows(*FRESH, "--workers", "21", "--block", "1000000")
        self.assertIn("not applicable", advice)
        self.assertIn("240 too many", advice)


class CollapseTest(unittest.TestCase):
    READ = [*PERSISTENT, "--workers", "100", "--sru", "10000"]

    def test_flags_are_the_symbols_of_the_source(self):
        deviation = math.sqrt(2)
        collapse = plan(*self.READ, "--window", "4", "--window_deviation", str(deviation), "--rto_min", "10ms")
        self.assertEqual((collapse["collapse_window"], collapse["collapse_rounds"]), (4, 3))
        self.assertEqual(collapse["rto_min_s"], 0.01)
        loss = 1 - (32000 + 12500) / 1040 / 400
        self.assertAlmostEqual(collapse["collapse_loss_probability"], loss, places=9)
        log = math.log(loss)
        bound = math.exp(4 * log + log * log)
        self.assertAlmostEqual(collapse["collapse_full_loss_bound"], bound, places=9)
        exact = bound / 2 * (1 + math.erf((4 + 2 * log) / 2))
        self.assertAlmostEqual(collapse["collapse_full_loss_probability"], exact, places=9)
        self.assertAlmostEqual(collapse["collapse_timeout_probability"], 1 - (1 - exact) ** 3, places=9)
        self.assertAlmostEqual(collapse["collapse_block_timeout_probability"], 1 - (1 - exact) ** 300, places=9)
        self.assertGreater(collapse["collapse_printed_goodput_bps"], collapse["collapse_goodput_bps"])

    def test_rounds_are_those_given(self):
        one = plan(*self.READ, "--window", "4", "--rounds", "1")
        self.assertEqual(one["collapse_rounds"], 1)
        self.assertAlmostEqual(one["collapse_timeout_probability"], one["collapse_full_loss_probability"], places=12)

    def test_rto_min_changes_how_bad_and_not_whether(self):
        slow, fast = (plan(*self.READ, "--rto_min", rto) for rto in ("200ms", "1ms"))
        self.assertEqual(slow["collapse_block_timeout_probability"], fast["collapse_block_timeout_probability"])
        self.assertLess(5 * slow["collapse_goodput_bps"], fast["collapse_goodput_bps"])


class SweepTest(unittest.TestCase):
    READ = [*FRESH, "--workers", "25", "--block", "1000000"]

    def test_a_row_for_each_value(self):
        self.assertEqual(len(table_rows(*self.READ, "--sweep", "buffer=16000:128000:x2")), 4)
        rows, advice = batch_rows(*self.READ, "--sweep", "buffer=16000:128000:x2")
        self.assertEqual(len(rows), 4)
        self.assertIn("Batches do best at 125 KiB", advice)

    def test_every_parameter_can_be_swept_and_nothing_else_changes(self):
        sru = [*FRESH, "--workers", "25", "--sru", "10000"]
        for sweep, key, values in (
                ("workers=2:4", "workers", [2, 3, 4]),
                ("workers=1:64:x4", "workers", [1, 4, 16, 64]),
                ("buffer=32kb:128kb", "buffer_bytes", [32768, 65536, 131072]),
                ("buffer=10p:30p:+10p", "buffer_bytes", [10400, 20800, 31200]),
                ("sru=1000:2000:+500", "sru_bytes", [1000, 1500, 2000]),
                ("capacity=100mbit:1gbit:x10", "capacity_bps", [1e8, 1e9]),
                ("rtt=20us:200us:+20us", "rtt_s", [20e-6 * i for i in range(1, 11)]),
                ("timer_granularity=1us:1ms:x10", "timer_granularity_s", [1e-6, 1e-5, 1e-4, 1e-3]),
        ):
            rows = csv_rows(*sru, "--sweep", sweep)
            self.assertEqual(len(rows), len(values), sweep)
            for row, value in zip(rows, values):
                self.assertAlmostEqual(row[key] / value, 1, places=9, msg=sweep)
            inputs = ("workers", "sru_bytes", "capacity_bps", "buffer_bytes", "rtt_s", "timer_granularity_s", "rto_min_s")
            for other in set(inputs) - {key}:
                self.assertEqual(len({row[other] for row in rows}), 1, f"{sweep} changes {other}")

    def test_rows_are_those_of_the_flags(self):
        base = dict(zip(FRESH[::2], FRESH[1::2])) | {"--workers": "25", "--sru": "10000"}
        for name, value in (("rtt", "150us"), ("sru", "7001"), ("workers", "31"), ("buffer", "45p")):
            sweep = f"{name}={value}:{value}"
            swept, = csv_rows(*sum(base.items(), ()), "--sweep", sweep)
            told = plan(*sum((base | {f"--{name}": value}).items(), ()))
            for key, value in told.items():
                if isinstance(value, float):
                    self.assertAlmostEqual(swept[key], value, delta=1e-9 * abs(value), msg=f"{sweep} {key}")

    def test_what_is_swept_need_not_be_given(self):
        self.assertEqual(len(csv_rows("--sru", "10kb", "--sweep", "workers=1:5")), 5)
        self.assertEqual(len(csv_rows("--workers", "5", "--sweep", "sru=1kb:4kb")), 3)

    def test_whole_values_come_once(self):
        rows = csv_rows("--sru", "10kb", "--sweep", "workers=1:6:x1.2")
        self.assertEqual([row["workers"] for row in rows], [1, 2, 3, 4, 5, 6])

    def test_anomaly_of_the_timer_granularity(self):
        # Source, V.D: T + d_max is 2.858 ms at N = 25, which 1 ms and 3 ms round to 3 ms, and 2 ms to 4 ms.
        rows = csv_rows(*self.READ, "--sweep", "timer_granularity=1ms:3ms:+1ms")
        self.assertEqual([round(row["slot_s"] * 1e3) for row in rows], [3, 4, 3])

    def test_csv_of_the_table_has_every_n(self):
        rows = csv_rows(*FRESH, "--workers", "22", "--block", "1000000")
        self.assertEqual([row["workers"] for row in rows], list(range(1, 23)))
        self.assertIn("240 too many", rows[20]["reason"])
        self.assertTrue(math.isnan(rows[20]["block_time_s"]))
        self.assertEqual((rows[20]["applicable"], rows[21]["applicable"]), ("false", "true"))


class PlotTest(unittest.TestCase):
    PLOT = pathlib.Path(__file__).resolve().parents[3] / "tools/sluice_plan/plan_plot.py"

    def plot(self, text, path):
        return subprocess.run([sys.executable, self.PLOT, path], input=text, capture_output=True, text=True, timeout=60,
                              check=False)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no module matplotlib, of Debian's package python3-matplotlib")
    def test_draws_a_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.svg")
            table = run("--workers", "64", "--sru", "32kb", "--sweep", "buffer=32kb:1mb", "--csv").stdout
            result = self.plot(table, path)
            self.assertEqual(result.returncode, 0, result.stderr)
            for text in ("buffer of the port, KiB", "goodput, Mbit/s", "grants", "batches", "unscheduled"):
                self.assertIn(text, path.read_text())

    def test_says_what_is_wrong(self):
        self.assertIn("sluice-plan --csv", self.plot("a,b\n1,2\n", "plan.svg").stderr)
        self.assertIn("OUT ends with .svg", self.plot("", "plan.gif").stderr)


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
        self.refused(["buffer_bytes is 32,", "did you mean 32kb (32768 bytes)?"], *sru, "--buffer", "32")
        self.refused(["buffer_bytes is 32,", "did you mean 32kb (32768 bytes)?"], *sru, "--sweep", "buffer=32:64kb")
        self.refused(["propagation_rtt is 0", "from 1ns to 10s"], *sru, "--rtt", "0us")
        self.refused(["propagation_rtt is 11s", "from 1ns to 10s"], *sru, "--rtt", "11s")
        self.refused(["frame_bytes is 900", "at least packet_payload_bytes", "1000"],
                     *sru, "--frame", "900", "--packet_payload", "1000")
        self.refused(["initial_window", "0"], *sru, "--initial_window", "0")
        self.refused(["initial_window_packets is 70000", "65536"], *sru, "--initial_window", "70000")
        self.refused(["timer_granularity is 0"], *sru, "--timer_granularity", "0s")
        self.refused(["connections", "lazy"], *sru, "--connections", "lazy")
        self.refused(["mtu", "40"], *sru, "--mtu", "40")

    def test_options_of_the_collapse_are_named(self):
        sru = ["--workers", "4", "--sru", "10000"]
        self.refused(["rto_min is 2h", "from 0 to 1h"], *sru, "--rto_min", "2h")
        self.refused(["rto_min", "soon"], *sru, "--rto_min", "soon")
        self.refused(["window_packets is -1", "from 0 to 4294967296"], *sru, "--window=-1")
        self.refused(["window_packets is nan"], *sru, "--window", "nan")
        self.refused(["window_deviation is inf"], *sru, "--window_deviation", "inf")
        self.refused(["rounds is -2"], *sru, "--rounds=-2")

    def test_sweeps_are_quoted(self):
        sru = ["--workers", "4", "--sru", "10000", "--sweep"]
        self.refused(['"buffer"', "NAME=FROM:TO"], *sru, "buffer")
        self.refused(['"buffer=1kb"', "NAME=FROM:TO"], *sru, "buffer=1kb")
        self.refused(['"jitter" cannot be swept', "timer_granularity"], *sru, "jitter=1us:1ms")
        self.refused(["begins wrongly", '"lots"'], *sru, "buffer=lots:1mb")
        self.refused(["ends wrongly", "ambiguous"], *sru, "capacity=1gbit:10gbps")
        self.refused(["ends before it begins"], *sru, "buffer=2kb:1kb")
        self.refused(["above 0"], *sru, "rtt=0us:1ms")
        self.refused(['"x1" is not a step', "above 1"], *sru, "buffer=1kb:2kb:x1")
        self.refused(['"2" is not a step'], *sru, "buffer=1kb:2kb:2")
        self.refused(['"+a bit" is not a step: "a bit"'], *sru, "rtt=1us:2us:+a bit")
        self.refused(['"+0us" is not a step', "above 0"], *sru, "rtt=1us:2us:+0us")
        self.refused(["more than 1048576 steps"], *sru, "rtt=1ns:1s:+1ns")
        self.refused(["more than 1048576 steps"], *sru, "buffer=1kb:1mb:x1.000000000001")
        self.refused(["propagation_rtt is 20s", "from 1ns to 10s"], *sru, "rtt=5s:20s")
        self.refused(["workers is 2097152", "1048576"], *sru, "workers=1:2097152:x2")
        self.refused(["--sru or --block"], "--workers", "4", "--block", "4000", "--sweep", "sru=1kb:2kb")
        self.refused(["--csv"], *sru, "rtt=1us:2us", "--json")

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
    plan_program.PROGRAM = sys.argv.pop(1)
    unittest.main()
