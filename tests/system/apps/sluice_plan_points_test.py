"""Compares the goodputs that sluice-plan prints with packet simulations: no number is wrong by a factor of more than 3. Run as:
sluice_plan_points_test.py PATH_OF_SLUICE_PLAN."""

import csv
import pathlib
import re
import subprocess
import sys
import unittest

_ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_ROOT / "research/ns2"))

import papers

_PLAN = ""
_FACTOR = 3
_UNITS = {"bit/s": 1e-6, "kbit/s": 1e-3, "Mbit/s": 1, "Gbit/s": 1e3}
_FIRST_LINE = re.compile(r"Sluice [a-z ]+: today (unknown|([0-9.]+) (\S+)), with Sluice ([0-9.]+) (\S+)\.\n(.*)\n")


class Printed:
    """What sluice-plan prints for one read: goodputs in Mbit/s. `today` is None if it is unknown."""

    def __init__(self, flags):
        result = subprocess.run([_PLAN, *map(str, flags)], capture_output=True, text=True, check=True)
        match = _FIRST_LINE.match(result.stdout)
        assert match, result.stdout
        unknown, today, today_unit, with_sluice, unit, self.reason = match.groups()
        self.today = None if unknown == "unknown" else float(today) * _UNITS[today_unit]
        self.with_sluice = float(with_sluice) * _UNITS[unit]


def rows(folder, name):
    with open(_ROOT / "research" / folder / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def lossless_points(name, goodput):
    """Fresh connections with an initial window of 1: 10 KB from each worker, or a block of 1 MB."""
    for row in rows("papers", name):
        sru = name == "lossless_fig6" or row.get("curve") == "fig6"
        if row.get("curve", "fig6") not in ("fig6", "fig7", "fig8"):
            continue  # other networks
        size = ("--sru", papers.FIXED_SRU) if sru else ("--block", papers.BLOCK)
        yield row, (*papers.LOSSLESS_PLAN, "--buffer", row["buffer_bytes"], "--workers", row["workers"], *size), float(row[goodput])


def understanding_points(name, goodput):
    """Persistent connections, 64 KB into 128 KB; a curve differs in one of these."""
    for row in rows("papers", name):
        settings = {"sru": 65_536, "buffer": 131_072, "rto_min": "200ms"}
        number, unit = re.match(r"(?:packets of )?(\d+) (KB of buffer|KB|ms|bytes)$", row["curve"]).groups()
        if unit == "bytes":
            settings |= {"packet_payload": int(number) - 40, "frame": number}
        elif unit == "ms":
            settings["rto_min"] = f"{number}ms"
        elif unit == "KB of buffer" or name == "understanding_fig7":
            settings["buffer"] = int(number) * 1024
        else:
            settings["sru"] = int(number) * 1024
        link = dict(zip(papers.UNDERSTANDING_PLAN[::2], papers.UNDERSTANDING_PLAN[1::2]))
        link |= {f"--{key}": value for key, value in settings.items()} | {"--workers": row["workers"]}
        yield row, sum(link.items(), ()), float(row[goodput])


def random_points():
    for row in rows("papers", "plan_unscheduled"):
        yield row, ("--capacity", f"{row['rate_mbit']}mbit", "--buffer", row["buffer_bytes"], "--rtt", f"{row['rtt_us']}us",
                    "--packet_payload", 1460, "--frame", 1500, "--ack", 40, "--workers", row["workers"], "--sru",
                    row["sru_bytes"]), float(row["simulated_mbps"])


_NS3_FRAMES = ("--packet_payload", 1448, "--frame", 1502, "--ack", 54)
# Flags of incast_sim that sluice-plan has too, and flags that do not change what it predicts.
_SAME_FLAGS = {"policy", "rate", "buffer", "rtt", "workers", "sizes", "concurrency", "warm_up", "fan_outs", "longest", "hosts", "seed"}


def ns3_points(policy):
    """Points of the product with workers that do not think. Nothing else disturbs them."""
    for path in sorted((_ROOT / "research/simulation").glob("*.csv")):
        for row in rows("simulation", path.stem):
            flags = dict(flag[2:].split("=", 1) for flag in row.get("flags", "").split())
            if flags.keys() - _SAME_FLAGS or flags.get("policy") != policy or not flags["sizes"].startswith("fixed:"):
                continue
            if policy == "unscheduled" and flags["concurrency"] != "1":
                continue  # fan-outs that overlap add up
            yield row, ("--capacity", flags["rate"], "--buffer", flags["buffer"], "--rtt", flags["rtt"], *_NS3_FRAMES, "--workers",
                        flags["workers"], "--sru", flags["sizes"].removeprefix("fixed:")), float(row["goodput_mbps"])


class PointsTest(unittest.TestCase):
    def check_today(self, points):
        """Returns the numbers of points with and without a printed goodput."""
        printed, unknown = 0, 0
        for row, flags, simulated_mbps in points:
            said = Printed(flags)
            if said.today is None:
                self.assertIn("more than the buffer: collapse is possible, this model cannot say when", said.reason, row)
                unknown += 1
                continue
            printed += 1
            self.assertLess(said.today, _FACTOR * simulated_mbps, row)
            self.assertLess(simulated_mbps, _FACTOR * said.today, row)
        return printed, unknown

    def test_today_152_points_of_ns2(self):
        points = [*understanding_points("understanding_fig6", "simulated_mbps"),
                  *understanding_points("understanding_fig7", "simulated_mbps")]
        self.assertEqual(len(points), 152)
        printed, unknown = self.check_today(points)
        self.assertEqual((printed, unknown), (5, 147))

    def test_today_other_figures_and_seeds_in_ns2(self):
        for name in ("lossless_fig6", "lossless_fig7", "lossless_fig8"):
            self.check_today(lossless_points(name, "unscheduled_mbps"))
        self.check_today(lossless_points("lossless_unscheduled_seeds", "mbps_mean"))
        self.check_today(understanding_points("understanding_fig8", "simulated_mbps"))
        for name in ("understanding_seeds", "understanding_hosts_seeds"):
            self.check_today(understanding_points(name, "mbps_mean"))

    def test_today_random_reads_in_ns2(self):
        self.assertEqual(self.check_today(random_points()), (24, 16))

    def test_today_of_the_product_without_a_schedule_in_ns3(self):
        printed, unknown = self.check_today(ns3_points("unscheduled"))
        self.assertGreater(printed, 3)
        self.assertGreater(unknown, 3)

    def test_grants_of_the_product_in_ns3(self):
        points = [*ns3_points("grants")]
        points += [(row, ("--buffer", row["buffer"], "--rtt", row["rtt"], *_NS3_FRAMES, "--workers", row["workers"], "--sru", row["size"]),
                    float(row["mbps_mean"])) for row in rows("papers", "lossless_ns3_seeds") if row["method"] == "grants"]
        self.assertGreater(len(points), 50)
        for row, flags, simulated_mbps in points:
            said = Printed(flags).with_sluice
            self.assertLess(said, _FACTOR * simulated_mbps, row)
            if row["concurrency"] == "1":  # fan-outs that overlap also use the round trips, which the prediction leaves idle
                self.assertLess(simulated_mbps, _FACTOR * said, row)

    def test_the_table_of_simulation_md(self):
        section = (_ROOT / "research/simulation.md").read_text().partition("## `plan`")[2].partition("\n## ")[0]
        lines = [[cell.strip() for cell in line.strip("|").split("|")][2:] for line in re.findall(r"(?m)^\|.*\d × \d.*\|$", section)]
        measured = {}
        for row in rows("simulation", "plan"):
            measured.setdefault(tuple(row[key] for key in ("rate", "buffer", "rtt", "workers", "size")), {})[row["method"]] = row
        self.assertEqual(len(lines), len(measured))
        plan = papers.Plan(_PLAN)
        for line, ((rate, buffer, rtt, workers, size), by) in zip(lines, measured.items()):
            said = plan.row("--capacity", rate, "--buffer", buffer, "--rtt", rtt, *_NS3_FRAMES, "--workers", workers, "--sru", size)
            mbps = {method: f"{float(row['goodput_mbps']):.0f}" for method, row in by.items()}
            today = said["unscheduled_goodput_bps"]
            nothing = by["nothing"]
            self.assertEqual(line, [f"{today / 1e6:.0f}" if today else "unknown", f"{said['grants_goodput_bps'] / 1e6:.0f}",
                                    f"{mbps['nothing']}; {nothing['drops']}, {nothing['rtos']}", mbps["grants"], mbps["paced"]])
            for method in ("grants", "paced"):
                self.assertEqual((by[method]["drops"], by[method]["rtos"]), ("0", "0"))

    def test_model_of_collapse_is_wrong_where_no_goodput_is_printed(self):
        """docs/internals/model.md has this number, the reason why the goodput is withheld."""
        plan = papers.Plan(_PLAN)
        too_high = 0
        for name in ("understanding_fig6", "understanding_fig7"):
            for _, flags, simulated_mbps in understanding_points(name, "simulated_mbps"):
                too_high += plan.row(*flags)["collapse_goodput_bps"] > _FACTOR * simulated_mbps * 1e6
        self.assertEqual(too_high, 37)


if __name__ == "__main__":
    _PLAN = sys.argv.pop(1)
    unittest.main(verbosity=2)
