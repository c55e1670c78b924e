"""Tests the aggregator's status page in a real browser: status_page_test.py PROGRAMS SCREENSHOTS [unittest
arguments].

Exits with code 77 and prints the reason if no browser is installed.
"""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_REPOSITORY / "tests/system/apps"))

import serving  # noqa: E402
from chromium import Chromium  # noqa: E402
from page_checks import low_contrast, overflow, shifted  # noqa: E402
from scripted_admin import ScriptedAdmin  # noqa: E402

_PAGE = (_REPOSITORY / "lib/telemetry/status_page.html").read_text(encoding="utf-8")
_SKIP = 77
_SIZES = {"phone": (390, 844), "desktop": (1280, 900)}
_SCREENSHOTS = pathlib.Path()


def number_of(name):
    return f'parseFloat(document.getElementById("{name}").textContent)'


def text_of(name):
    return f'document.getElementById("{name}").textContent'


def free_port():
    """Returns a port below the kernel's ephemeral range, so that it stays free until a restarted server binds it
    again."""
    while True:
        port = random.randrange(10_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            pass


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-browser-")
        cls.addClassCleanup(folder.cleanup)
        cls.browser = Chromium(folder.name)
        cls.addClassCleanup(cls.browser.close)

    def open(self, url, size="desktop"):
        width, height = _SIZES[size]
        self.browser.new_page()
        self.browser.resize(width, height, mobile=size == "phone", scale=2 if size == "phone" else 1)
        self.browser.set_color_scheme("light")
        self.browser.open(url)

    def nothing_is_wrong(self, url):
        self.assertEqual(self.browser.errors(), [])
        asked = set(self.browser.requests())
        self.assertLessEqual({url, f"{url}metrics", f"{url}healthz", f"{url}workers.json"}, asked)
        self.assertEqual([other for other in asked if not other.startswith((url, "data:"))], [])


class LiveTest(BrowserTest, serving.ServingTest):
    """Shows a real aggregator with workers and a load."""

    def start_served(self, *worker_flags):
        self.workers = self.start_workers(*worker_flags)
        self.ports = [free_port(), free_port()]
        return self.start_again()

    def start_again(self):
        listen, admin = (f"127.0.0.1:{port}" for port in self.ports)
        self.url = f"http://{admin}/"
        return self.start_aggregator(self.workers.addresses, "--admin", admin, "--capacity", "1gbit", "--budget",
                                     "256kb", "--drain_timeout", f"{serving.PATIENCE}s", listen=listen)

    def start_load(self, aggregator):
        load = subprocess.Popen(
            [serving.program("sluice-load"), "--aggregator", aggregator.addresses[0], "--file", "data",
             "--clients", "2", "--blocks", "1000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(load.wait)
        self.addCleanup(load.kill)
        return load

    def sees_changes(self, times):
        self.browser.wait_for(f"{number_of('goodput')} > 0", "goodput to be shown")
        for _ in range(times):
            shown = self.browser.evaluate(text_of("goodput"))
            self.browser.wait_for(f"{text_of('goodput')} !== {json.dumps(shown)}", "goodput to change by itself")

    def test_shows_a_load_on_every_screen(self):
        aggregator = self.start_served()
        self.start_load(aggregator)
        for size in _SIZES:
            with self.subTest(size):
                self.open(self.url, size)
                self.sees_changes(times=5)
                self.assertEqual(shifted(self.browser), [])
                self.assertEqual(self.browser.evaluate(text_of("state")), "serving")
                self.browser.wait_for("points.some((point) => point.inFlight > 0)", "something in flight at a look")
                for name in ("p99", "complete", "n", "measured"):
                    self.assertGreater(self.browser.evaluate(number_of(name)), 0, name)
                self.assertEqual(self.browser.evaluate(text_of("capacity")), "1.00 Gbit/s")
                self.assertEqual(self.browser.evaluate(text_of("budget")), "256 KiB")
                self.assertEqual(self.browser.evaluate("byId('kinds').rows.length"), 4)
                rows = self.browser.evaluate("[...byId('worker-rows').rows].map((row) => row.cells[0].textContent)")
                self.assertEqual({row.split()[0] for row in rows}, set(self.workers.addresses))
                for scheme in ("light", "dark"):
                    self.browser.set_color_scheme(scheme)
                    self.assertEqual(low_contrast(self.browser), [])
                    self.browser.screenshot(_SCREENSHOTS / f"status-page-{size}-{scheme}.png")
                for width in (320, 360, 390, 420, 768, 1280) if size == "desktop" else (320, 420):
                    self.browser.resize(width, 800, mobile=size == "phone")
                    self.assertEqual(overflow(self.browser, width), [], width)
                self.nothing_is_wrong(self.url)

    def test_outlives_a_restart_of_the_aggregator(self):
        aggregator = self.start_served()
        load = self.start_load(aggregator)
        self.open(self.url, "phone")
        self.sees_changes(times=2)
        aggregator.close()
        load.kill()
        said = f"/^no answer since \\d\\d:\\d\\d:\\d\\d$/.test({text_of('state')})"
        self.browser.wait_for(said, "the page to notice")
        self.assertEqual(self.browser.evaluate("document.title"), "no answer – sluice-aggregator")
        self.assertEqual(low_contrast(self.browser), [])
        self.browser.resize(320, 800, mobile=True)
        self.assertEqual(overflow(self.browser, 320), [])
        self.browser.screenshot(_SCREENSHOTS / "status-page-no-answer.png", whole_page=False)
        answers = self.browser.evaluate("points.length")

        aggregator = self.start_again()
        self.browser.wait_for(f"{text_of('state')} === 'serving'", "the page to recover")
        self.start_load(aggregator)
        self.browser.wait_for(f"points.length > {answers} + 2 && points.at(-1).goodput > 0", "goodput again")
        below_0 = "points.filter((point) => point.goodput < 0 || point.incomplete < 0)"
        self.assertEqual(self.browser.evaluate(below_0), [])
        self.assertEqual(self.browser.evaluate("document.querySelector('main').className"), "serving")
        self.nothing_is_wrong(self.url)

    def test_its_policy_lets_nothing_out(self):
        self.start_served()
        self.open(self.url)
        self.browser.wait_for("points.length > 1", "two answers")
        forbidden = """new Promise((resolve) => {
          addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
          const send = %s;
          send().catch(() => 0);
        })"""
        for send, directive in {
            "() => fetch('http://192.0.2.1/')": "connect-src",
            "() => import('/metrics')": "script-src-elem",
            "async () => { new Image().src = '/image'; }": "img-src",
        }.items():
            self.assertEqual(self.browser.evaluate(forbidden % send), directive)

    def test_says_that_the_aggregator_drains(self):
        aggregator = self.start_served("--think_time", "20s")
        self.open(self.url)
        self.browser.wait_for(f"{text_of('state')} === 'serving'", "the page to be there")
        load = self.start_load(aggregator)
        self.browser.wait_for(f"{number_of('blocks')} > 0", "a read to begin")
        aggregator.process.send_signal(signal.SIGTERM)
        self.browser.wait_for(f"{text_of('state')} === 'draining'", "the page to say so")
        self.assertEqual(low_contrast(self.browser), [])
        load.kill()
        self.nothing_is_wrong(self.url)


class ScriptedTest(BrowserTest):
    """Shows values that no real aggregator can produce on demand."""

    def setUp(self):
        self.admin = ScriptedAdmin(_PAGE)
        self.addCleanup(self.admin.close)

    def show(self):
        self.open(self.admin.url)
        self.browser.wait_for("points.length > 1", "two answers")

    def shown(self, name):
        return self.browser.evaluate(text_of(name))

    def evaluate(self, before, now, expression):
        """Evaluates an expression with two samples, two seconds apart."""
        samples = ", ".join(f"Object.assign(new Sample({json.dumps(text)}), {{at: {at}}})"
                            for text, at in ((before, 10), (now, 12)))
        return self.browser.evaluate(f"((before, now) => {expression})({samples})")

    def test_reads_the_text_of_prometheus(self):
        self.show()
        text = """# HELP x Some {text} 1
            |# TYPE x counter
            |x{a="1",b="quote \\" slash \\\\ line \\n brace } end"} 3.5e+1
            |x{a="2"} 2 1700000000000
            |y +Inf
            |z Nan
            |""".replace("            |", "")
        labels = self.evaluate("", text, "now.all('x').map((series) => series.labels)")
        self.assertEqual(labels, [{"a": "1", "b": 'quote " slash \\ line \n brace } end'}, {"a": "2"}])
        sums = "[now.sum('x'), now.sum('x', {a: '2'}), now.sum('y') === Infinity]"
        self.assertEqual(self.evaluate("", text, sums), [37, 2, True])
        unknown = "[now.sum('z'), now.sum('x', {a: '3'}), now.sum('w')].map(Number.isNaN)"
        self.assertEqual(self.evaluate("", text, unknown), [True] * 3)

    def test_makes_rates_and_quantiles_of_what_came_between_two_samples(self):
        self.show()
        before = 'c 1000\nh_bucket{le="0.1"} 5\nh_bucket{le="0.2"} 5\nh_bucket{le="+Inf"} 6\n'
        now = 'c 5000\nh_bucket{le="0.1"} 15\nh_bucket{le="0.2"} 25\nh_bucket{le="+Inf"} 26\n'
        self.assertEqual(self.evaluate(before, now, "rate(before, now, 'c')"), 2000)
        quantiles = self.evaluate(before, now, "[0.25, 0.5, 0.75, 1].map((q) => quantile(q, before, now, 'h'))")
        for got, expected in zip(quantiles, (0.05, 0.1, 0.15, 0.2), strict=True):
            self.assertAlmostEqual(got, expected)
        above_all = now.replace('"+Inf"} 26', '"+Inf"} 1000')
        self.assertEqual(self.evaluate(before, above_all, "quantile(0.99, before, now, 'h')"), 0.2)
        for unknown in ("quantile(0.5, now, now, 'h')", "quantile(0.5, undefined, now, 'h')",
                        "rate(undefined, now, 'c')"):
            self.assertTrue(self.evaluate(before, now, f"Number.isNaN({unknown})"), unknown)

    def test_knows_a_restart(self):
        self.show()
        start = "process_start_time_seconds"
        for before, now, expected in ((f"{start} 1\nc_total 5", f"{start} 1\nc_total 5", False),
                                      (f"{start} 1\nc_total 5", f"{start} 2\nc_total 9", True),
                                      ("c_total 5", "c_total 6\nd_total 0", False), ("c_total 5", "c_total 4", True),
                                      ("gauge 5", "gauge 4", False)):
            self.assertEqual(self.evaluate(before, now, "isRestart(before, now)"), expected, (before, now))

    def test_writes_numbers_for_people(self):
        self.show()
        for expression, expected in {
            "bitRate(92.34e6)": "92.3 Mbit/s", "bitRate(999.6)": "1.00 kbit/s", "bitRate(0)": "0 bit/s",
            "bitRate(NaN)": "–", "size(32768)": "32.0 KiB", "size(1023)": "1023 B", "time(0.00123)": "1.23 ms",
            "time(0.09996)": "100 ms", "time(75)": "75.0 s", "count(12345)": "12,345", "percent(0.925)": "93 %",
            "percent(NaN)": "– %", "roundUp(93)": 100, "roundUp(100)": 100, "roundUp(101)": 200,
            "roundUp(33000, 1024)": 64 * 1024, "roundUp(1000, 1024)": 1024,
        }.items():
            self.assertEqual(self.browser.evaluate(expression), expected, expression)

    def test_shows_what_there_is_and_hides_what_there_is_not(self):
        self.admin.metrics = "sluice_goodput_bytes_total 1\n"
        self.show()
        self.assertEqual(self.shown("goodput"), "0 bit/s")
        for name in ("in-flight", "budget", "capacity", "predicted", "p99", "slot"):
            self.assertEqual(self.shown(name), "–", name)
        self.assertEqual(self.shown("calls"), "– calls")
        self.assertEqual(self.shown("workers-note"), "This program does not tell.")
        for name in ("tcp", "workers", "clients", "classes"):
            self.assertFalse(self.browser.evaluate(f"byId('{name}').checkVisibility()"), name)
        self.assertEqual(self.admin.asked.count("/workers.json"), 1)
        self.nothing_is_wrong(self.admin.url)

    def test_shows_every_metric_that_there_is(self):
        self.admin.metrics = "\n".join((
            "sluice_link_capacity_bytes_per_second 12500000", "sluice_plan_goodput_bytes_per_second 11750000",
            "sluice_in_flight_bytes 24576", "sluice_budget_bytes 32768", "sluice_budget_floor_bytes 8192",
            "sluice_budget_limit_bytes 65536", "sluice_budget_ceiling_bytes 40960", "sluice_queued_calls 180", "sluice_link_idle_seconds_total 3",
            "sluice_queued_blocks 1", "sluice_ungranted_calls 41", "sluice_ready_bytes 2097152",
            "sluice_plan_slot_seconds 0.002", 'sluice_timeouts_total{kind="tcp_rto"} 7',
            'sluice_timeouts_total{kind="stall"} 2', 'sluice_timeouts_total{kind="new"} 1',
            'sluice_schedule_policy{policy="grants"} 0', 'sluice_schedule_policy{policy="rolling"} 1',
            "sluice_link_connections 128", 'sluice_link_rtt_seconds{stat="min"} 0.0002',
            'sluice_link_rtt_seconds{stat="smoothed"} 0.0021', ""))
        self.show()
        for name, expected in {
            "capacity": "100 Mbit/s", "predicted": "94.0 Mbit/s", "plan-predicted": "94.0 Mbit/s",
            "in-flight": "24.0 KiB", "in-flight-share": "75 % of the budget", "budget": "32.0 KiB", "budget-bounds": "8.00 KiB to 64.0 KiB",
            "budget-ceiling": "40.0 KiB", "link-idle": "0 %", "calls": "180 calls", "blocks": "1 block", "ungranted": "41, 2.00 MiB ready",
            "slot": "2.00 ms", "connections": "128", "rtt": "2.10 ms", "rtt-min": "smoothed; least 200 µs",
            "policy": "rolling",
        }.items():
            self.assertEqual(self.shown(name), expected, name)
        kinds = self.browser.evaluate("[...byId('kinds').rows].map((row) => row.innerText.split('\\t'))")
        self.assertEqual(kinds, [["stalled", "0", "2"], ["TCP RTO", "0", "7"], ["new", "0", "1"]])

        self.admin.metrics = self.admin.metrics.replace('kind="stall"} 2', 'kind="stall"} 6')
        self.browser.wait_for(f"{text_of('timeouts')} === '4'", "timeouts to be counted")
        self.assertEqual(self.browser.evaluate("byId('kinds').rows[0].innerText"), "stalled\t4\t6")
        self.browser.evaluate("points.unshift({...points[0], at: points[0].at - 181}), draw()")
        self.assertTrue(self.browser.evaluate("points.every((point) => performance.now() / 1000 - point.at < 180)"))
        names = self.browser.accessible_names("image")
        self.assertIn("Timeouts each second, last 3 minutes: 4 together", names)
        self.assertIn("Bytes in flight, last 3 minutes: 24.0 KiB now, from 24.0 KiB to 24.0 KiB", names)
        self.assertEqual(len(names), 7)
        self.assertEqual(self.browser.accessible_names("heading")[1:4], ["Goodput last 3 min", "Plan", "Bytes in flight"])

    def test_a_link_without_a_schedule_has_no_budget(self):
        self.admin.metrics = "\n".join((
            'sluice_schedule_policy{policy="grants"} 0', 'sluice_schedule_policy{policy="unscheduled"} 1',
            "sluice_in_flight_bytes 24576", "sluice_budget_bytes 9.2e18", "sluice_plan_goodput_bytes_per_second Nan", ""))
        self.show()
        self.assertEqual([self.shown(name) for name in ("policy", "in-flight", "in-flight-share", "budget", "predicted", "plan-predicted")],
                         ["unscheduled", "24.0 KiB", "– % of the budget", "–", "–", "–"])

    def test_a_proxy_shows_its_clients_and_what_it_does_not_schedule(self):
        bucket = 'sluice_proxy_call_seconds_bucket{{method="/a/b",le="{}"}} {}'
        text = "\n".join((
            "sluice_goodput_bytes_total 1", "sluice_link_capacity_bytes_per_second 12500000", "sluice_queued_calls 3",
            "sluice_plan_goodput_bytes_per_second 11750000", "sluice_proxy_connections 40", "sluice_proxy_calls 1",
            'sluice_proxy_connections_total{kind="refused"} 5', 'sluice_proxy_tunnels{to="worker"} 32',
            'sluice_proxy_tunnels{to="scheduled"} 4', 'sluice_proxy_tunnels{to="other"} 1',
            'sluice_proxy_tunnel_received_bytes_total{to="scheduled"} 1',
            'sluice_proxy_tunnel_received_bytes_total{to="worker"} %d',
            'sluice_proxy_tunnel_received_bytes_total{to="other"} 1', bucket.format("0.01", "%d"),
            bucket.format("+Inf", "%d"), 'sluice_block_seconds_bucket{le="+Inf"} 0',
            'sluice_class_queued_calls{class="queries"} 1', 'sluice_class_queued_calls{class="scan"} 2',
            'sluice_class_received_bytes_total{class="queries"} %d', 'sluice_class_received_bytes_total{class="scan"} 0',
            'sluice_tunnels{phase="quiet",workers="*.redis.svc:6379"} 1',
            'sluice_tunnels{phase="waiting",workers="*.redis.svc:6379"} 3',
            'sluice_tunnel_received_bytes_total{workers="*.redis.svc:6379"} 7', ""))
        self.admin.metrics = text % (0, 0, 0, 0)
        self.show()
        for name, expected in {
            "program": "sluice-proxy", "client-connections": "40 connections", "client-calls": "1 call", "refused": "0",
            "timed": "Time of a call", "plan-share": "no response in 10 s",
        }.items():
            self.assertEqual(self.shown(name), expected, name)
        tunnels = "[...byId('tunnel-rows').rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
        rows = [["scheduled", "4", "0 bit/s"], ["not scheduled", "32", "0 bit/s"], ["to other hosts", "1", "0 bit/s"]]
        self.assertEqual(self.browser.evaluate(tunnels), rows)
        patterns = tunnels.replace("tunnel-rows", "pattern-rows")
        self.assertEqual(self.browser.evaluate(patterns), [["*.redis.svc:6379", "3 of 4", "0 bit/s"]])
        classes = tunnels.replace("tunnel-rows", "class-rows")
        self.assertEqual(self.browser.evaluate(classes), [["queries", "1", "0 bit/s"], ["scan", "2", "0 bit/s"]])
        self.assertEqual(self.browser.evaluate("document.title"), "0 bit/s – sluice-proxy")
        for name, visible in (("clients", True), ("classes", True), ("complete", False), ("incomplete", False)):
            self.assertEqual(self.browser.evaluate(f"byId('{name}').checkVisibility()"), visible, name)
        self.admin.metrics = (text % (5_000_000, 10, 10, 5_000_000)).replace('"refused"} 5', '"refused"} 7')
        self.browser.wait_for(f"{text_of('refused')} === '2'", "refusals to be counted")
        self.assertRegex(self.browser.evaluate(tunnels)[1][2], r"^\d\S* Mbit/s$")
        self.assertRegex(self.browser.evaluate(classes)[0][2], r"^\d\S* Mbit/s$")
        self.assertEqual(self.browser.evaluate("[...byId('latencies').rows].map((row) => row.cells[0].textContent)"), ["call"])
        self.assertEqual(self.shown("p99"), "9.90 ms")
        for width in (320, 390, 768, 1280):
            self.browser.resize(width, 800, mobile=width < 400)
            self.assertEqual(overflow(self.browser, width), [], width)
        self.assertEqual(low_contrast(self.browser), [])
        self.nothing_is_wrong(self.admin.url)

    def test_marks_slow_workers_and_takes_their_addresses_for_text(self):
        hostile = '<img src="http://192.0.2.1/x" onerror="throw 1">:1'
        times = {hostile: 9, "slow:1": 4.2, **{f"10.0.0.{i}:20000": 2 - i / 100 for i in range(1, 19)}}
        workers = [{"address": address, "responses": 7, "losses": 1, "ready_seconds": ms / 2000,
                    "transfer_seconds": ms / 2000, "faults": ["paused", "lossy"] if address == "slow:1" else []}
                   for address, ms in times.items()]
        self.admin.workers = json.dumps({"workers": workers, "total": 64})
        self.show()
        self.assertEqual(self.shown("workers-note"), "20 of 64; at fault: 1; over twice the median: 2")
        slow = self.browser.evaluate("[...document.querySelectorAll('tr.slow')].map((row) => row.cells[0].textContent)")
        self.assertEqual(slow, [f"{hostile} ▲ 4.95\u00a0×", "slow:1 ▲ paused, lossy, 2.31\u00a0×"])
        second = self.browser.evaluate("[...byId('worker-rows').rows[1].cells].map((cell) => cell.textContent)")
        self.assertEqual(second[1:], ["2.10 ms", "2.10 ms", "1", "–", "–", "–", "7"])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('#workers img').length"), 0)
        for width in (320, 1280):
            self.browser.resize(width, 800, mobile=width == 320)
            self.assertEqual(overflow(self.browser, width), [])
        self.nothing_is_wrong(self.admin.url)

    def test_knows_no_median_before_anybody_has_answered(self):
        workers = [{"address": "a:1", "responses": 1, "ready_seconds": 0.001, "transfer_seconds": 0.001},
                   {"address": "b:1", "responses": 0}, {"address": "c:1", "responses": 0}]
        self.admin.workers = json.dumps({"workers": workers, "total": 3})
        self.show()
        self.assertEqual(self.shown("workers-note"), "3 of 3; at fault: 0; over twice the median: 0")

    def test_says_what_ails_a_server_that_is_not_well(self):
        self.admin.health = "out of luck"
        self.show()
        self.assertEqual(self.shown("state"), "out of luck")
        self.admin.health = "ok"
        self.browser.wait_for(f"{text_of('state')} === 'serving'", "the page to notice")


def main():
    global _SCREENSHOTS
    if Chromium.path() is None:
        print("SKIPPED: there is no chromium; on Debian: tests/install-packages.sh browser")
        sys.exit(_SKIP)
    serving.PROGRAMS, _SCREENSHOTS = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
    os.makedirs(_SCREENSHOTS, exist_ok=True)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
