"""What sluice-plan tells people: its verdict and its table. Run as: sluice_plan_verdict_test.py PATH_OF_SLUICE_PLAN."""

import sys
import unittest

import plan_program
from plan_program import FRESH, plan, sections, table_rows


class VerdictTest(unittest.TestCase):
    SHALLOW = ["--capacity", "100mbit", "--buffer", "32kb", "--sru", "10kb"]

    def first_line(self, *flags):
        return sections(*flags)[0].splitlines()[0]

    def test_needed_and_how_far_the_responses_exceed_the_buffer(self):
        verdict, _, _ = sections(*self.SHALLOW, "--workers", "64")
        self.assertTrue(verdict.startswith(
            "Sluice is needed: today unknown, with Sluice 94.9 Mbit/s.\n"
            "64 responses of 10 KiB are 641 KiB more than the buffer: collapse is possible, this model cannot say when (the buffer has "
            "32 KiB). The model of collapse expects most fan-outs to wait for a TCP timeout of 200 ms or more.\n"), verdict)

    def test_not_needed_where_everything_fits(self):
        verdict, _, _ = sections("--capacity", "10gbit", "--buffer", "512kb", "--sru", "10kb", "--workers", "32")
        self.assertTrue(verdict.startswith("Sluice is not needed: today 6.98 Gbit/s, with Sluice 6.98 Gbit/s.\n"))
        self.assertIn("All 32 responses of 10 KiB fit the port buffer together: 336 KiB of 512 KiB.", verdict)

    def test_borderline_where_the_buffer_overflows_and_the_model_gains_less_than_5_percent(self):
        verdict, _, _ = sections("--capacity", "1gbit", "--buffer", "64kb", "--sru", "20kb", "--workers", "8")
        self.assertTrue(verdict.startswith("Sluice may be needed: today unknown, with Sluice 889 Mbit/s.\n"), verdict)
        self.assertIn("more than the buffer: collapse is possible, this model cannot say when", verdict)
        self.assertNotIn("expects", verdict)

    def test_reason_names_bytes_and_the_timeout(self):
        verdict, _, _ = sections(*FRESH, "--workers", "20", "--sru", "10000", "--rto_min", "50ms")
        self.assertIn("(the buffer has 31.2 KiB)", verdict)
        self.assertIn("expects most fan-outs to wait for a TCP timeout of 50 ms or more.", verdict)

    def test_goodput_is_never_printed_if_the_responses_exceed_the_buffer(self):
        # The second worker's response does not fit. ns-2 has 31 Mbit/s, and the model of collapse 956.
        verdict, table, _ = sections("--capacity", "1gbit", "--buffer", "64kb", "--sru", "64kb", "--workers", "2")
        self.assertTrue(verdict.startswith("Sluice may be needed: today unknown, with Sluice 876 Mbit/s.\n"), verdict)
        self.assertIn("unknown", table.splitlines()[-1].split())
        row = plan("--capacity", "1gbit", "--buffer", "64kb", "--sru", "64kb", "--workers", "2")
        self.assertIsNone(row["unscheduled_goodput_bps"])
        self.assertEqual(row["unscheduled_reason"],
                         "69.9 KiB more than the buffer: collapse is possible, this model cannot say when")

    def test_goodput_is_printed_if_they_fit(self):
        row = plan("--capacity", "1gbit", "--buffer", "128kb", "--sru", "16kb", "--workers", "4")
        self.assertGreater(row["unscheduled_goodput_bps"], 0.7e9)
        self.assertNotIn("unscheduled_reason", row)

    def test_path_that_holds_more_than_the_budget(self):
        long_path = ["--capacity", "1gbit", "--buffer", "32kb", "--sru", "1mb", "--workers", "8", "--rtt"]
        verdict, _, _ = sections(*long_path, "1ms")
        self.assertTrue(verdict.startswith("Sluice may be needed: today unknown, with Sluice 230 Mbit/s.\n"), verdict)
        self.assertIn("The path holds 122 KiB and the budget is 32 KiB, so grants keep the link busy for 24 % of the time at most. That "
                      "may be slower than no schedule; schedule.paced is for such paths.\n", verdict)
        verdict, _, _ = sections(*long_path, "100us")
        self.assertNotIn("The path holds", verdict)
        verdict, _, _ = sections(*long_path[:-1], "--sweep", "rtt=100us:1ms:x10")
        self.assertIn("With rtt = 1 ms, the path holds 122 KiB", verdict)

    def test_says_what_windows_of_tunnels_allow_if_workers_think(self):
        verdict, _, _ = sections(*self.SHALLOW, "--workers", "64", "--think", "10ms")
        self.assertIn("Workers that think for 10 ms cost calls nothing", verdict)
        self.assertIn("Tunnels of any protocol carry 67.5 Mbit/s: each holds a window of 2 packets while its worker thinks, "
                      "and 10 windows fit the buffer.", verdict)
        verdict, _, _ = sections(*self.SHALLOW, "--workers", "64")
        self.assertNotIn("Tunnels", verdict)

    def test_link_and_its_defaults_are_echoed(self):
        verdict, _, _ = sections(*self.SHALLOW, "--workers", "64")
        self.assertIn("\nLink: capacity 100 Mbit/s, buffer 32 KiB. Defaults: rtt 100 us, mtu 1500, connections persistent, "
                      "initial_window 10, rto_min 200 ms.", verdict)
        verdict, _, _ = sections("--sru", "10kb", "--workers", "64", "--rto_min", "10ms")
        self.assertIn("\nLink: rto_min 10 ms. Defaults: capacity 1 Gbit/s, buffer 32 KiB, rtt 100 us, mtu 1500,", verdict)
        verdict, _, _ = sections(*FRESH, "--workers", "16", "--sru", "10000")
        self.assertIn("packet_payload 1000, frame 1040", verdict)
        self.assertIn("connections fresh, initial_window 1", verdict)
        self.assertNotIn("mtu", verdict)
        self.assertNotIn("timer_granularity", verdict)
        verdict, _, _ = sections("--sru", "10kb", "--workers", "4", "--buffer", "100p", "--mtu", "9000", "--batches")
        self.assertIn("\nLink: buffer 100 packets, mtu 9000. Defaults:", verdict)
        self.assertIn("timer_granularity 50 us, jitter 200 us", verdict)

    def test_value_that_is_swept_is_not_echoed(self):
        verdict, _, _ = sections("--sru", "10kb", "--workers", "4", "--sweep", "buffer=32kb:64kb")
        self.assertIn("\nLink, defaults: capacity 1 Gbit/s, rtt 100 us,", verdict)

    def test_sweep_names_the_values_of_each_verdict(self):
        verdict, _, _ = sections("--capacity", "1gbit", "--sru", "32kb", "--workers", "64", "--sweep", "buffer=32kb:4mb:x2")
        self.assertTrue(verdict.startswith(
            "Sluice is needed at buffer = 32 KiB to 512 KiB; may be needed at 1 MiB to 2 MiB; is not needed at 4 MiB.\n"), verdict)
        self.assertIn("\nToday 950 Mbit/s if all responses fit the buffer, otherwise unknown: ", verdict)
        self.assertIn("With Sluice 950 Mbit/s.", verdict)


class TableTest(unittest.TestCase):
    def test_default_columns_are_grants_and_unscheduled(self):
        _, table, rest = sections(*FRESH, "--workers", "17", "--sru", "10000")
        self.assertEqual(table.splitlines()[0].split(), ["N", "grants", "unscheduled", "timeouts", "Sluice"])
        self.assertTrue(rest.startswith("grants, unscheduled: goodput of one fan-out after the other."), rest)
        self.assertIn("\nNext: sluice-proxy in front of the client, or the library in it.", rest)
        last = table.splitlines()[-1]
        json_of_last = plan(*FRESH, "--workers", "17", "--sru", "10000")
        self.assertIn(f"{json_of_last['grants_goodput_bps'] / 1e6:.0f} Mbit/s", last)
        self.assertTrue(last.endswith("  needed"), last)

    def test_rows_are_powers_of_two_the_last_and_changes_of_the_verdict(self):
        rows = table_rows(*FRESH, "--workers", "17", "--sru", "10000")
        numbers = [row[0] for row in rows]
        every = table_rows(*FRESH, "--workers", "17", "--sru", "10000", "--all")
        self.assertTrue(self.changes(every))
        self.assertEqual(set(numbers), {"1", "2", "4", "8", "16", "17"} | self.changes(every))

    def changes(self, rows):
        verdicts = [" ".join(word for word in row if word in ("not", "may", "be", "needed")) for row in rows]
        return {row[0] for i, row in enumerate(rows) if i > 0 and verdicts[i] != verdicts[i - 1]}

    def test_all_prints_every_row(self):
        rows = table_rows(*FRESH, "--workers", "17", "--sru", "10000", "--all")
        self.assertEqual([row[0] for row in rows], [str(n) for n in range(1, 18)])


if __name__ == "__main__":
    plan_program.PROGRAM = sys.argv.pop(1)
    unittest.main()
