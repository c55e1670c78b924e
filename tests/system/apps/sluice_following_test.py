"""Programs that keep running while their config, their workers or the workers' addresses change, as on Kubernetes.

Run as: sluice_following_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

sys.dont_write_bytecode = True
from certificates import Authority  # noqa: E402
from name_server import NameServer  # noqa: E402
from serving import PATIENCE, SRU_BYTES, WORKERS, ServingTest, fetch, main, metric, program, run, wait_until  # noqa: E402

_INSIDE = "SLUICE_FOLLOWING_TEST_INSIDE"
_UNSUPPORTED = 77  # ctest's SKIP_RETURN_CODE


class FollowingTest(ServingTest):
    def setUp(self):
        super().setUp()
        self.stripe("twice", self.source, "--replicas", "2")

    def start_worker(self, listen):
        return self.start("sluice-worker", "--data", self.path("stripes"), "--listen", listen)

    def samples(self, aggregator, expected):
        return {name: metric(aggregator, name) for name in expected} == expected

    def await_samples(self, aggregator, expected):
        wait_until(lambda: self.samples(aggregator, expected), str(expected))

    def reads_right(self, aggregator, name="data"):
        result = self.cat(aggregator, name)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.source)


class ReloadTest(FollowingTest):
    APPLIED, INVALID, REFUSED = (f'sluice_config_reloads_total{{outcome="{outcome}"}}'
                                 for outcome in ("applied", "invalid", "refused"))

    def setUp(self):
        super().setUp()
        self.workers = self.start_workers()
        self.config = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "workers": self.workers.addresses,
                       "link": {"capacity": "1gbit", "buffer": "32kb"}, "reload_interval": "20ms"}
        self.write(self.config)

    def write(self, config):
        """Replaces the file atomically, as Kubernetes does: a reader never sees half of a file."""
        text = config if isinstance(config, str) else json.dumps(config)
        with open(self.path("config.new"), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.path("config.new"), self.path("config.json"))

    @staticmethod
    def policy(name):
        return f'sluice_schedule_policy{{policy="{name}"}}'

    def start_configured(self, *flags):
        return self.start("sluice-aggregator", "--config", self.path("config.json"), *flags)

    def test_another_link_is_in_force_at_once_and_reads_go_on(self):
        aggregator = self.start_configured()
        hash_before = metric(aggregator, "sluice_config_hash")
        since = metric(aggregator, "sluice_config_last_reload_success_timestamp_seconds")
        with subprocess.Popen([program("sluice-load"), "--aggregator", aggregator.addresses[0], "--file", "data",
                               "--clients", "4", "--blocks", "200", "--compare", self.path("input")],
                              stdout=subprocess.PIPE) as load:
            for round_number in range(20):
                self.write({**self.config, "link": {"capacity": "2gbit", "buffer": f"{20 + round_number}kb"}})
                self.await_samples(aggregator, {self.APPLIED: round_number + 1})
            report = json.loads(load.communicate(timeout=PATIENCE)[0])
        self.assertEqual((report["blocks"], report["errors"], report["bad_bytes"]), (800, 0, 0))
        self.assertEqual(metric(aggregator, "sluice_link_capacity_bytes_per_second"), 250e6)
        self.assertNotEqual(metric(aggregator, "sluice_config_hash"), hash_before)
        self.assertGreater(metric(aggregator, "sluice_config_last_reload_success_timestamp_seconds"), since)
        self.assertEqual(metric(aggregator, "sluice_workers_wanted"), WORKERS)
        self.write(self.config)
        self.await_samples(aggregator, {"sluice_config_hash": hash_before})

    def test_the_policy_changes_while_reads_go_on(self):
        self.config["reload_interval"] = "0s"
        self.write({**self.config, "schedule": {"policy": "unscheduled"}})
        aggregator = self.start_configured()
        policies = [*("grants", "unscheduled") * 4, "rolling", "batches", "unscheduled", "batches", "grants", "rolling",
                    "unscheduled", "grants"]
        goodput = 'sluice_goodput_bytes_total{worker_kind="primary"}'
        with subprocess.Popen([program("sluice-load"), "--aggregator", aggregator.addresses[0], "--file", "data",
                               "--clients", "4", "--blocks", "1000", "--compare", self.path("input")],
                              stdout=subprocess.PIPE) as load:
            for policy in policies:
                before = metric(aggregator, goodput)
                wait_until(lambda least=before: metric(aggregator, goodput) > least, "reads")
                self.assertIsNone(load.poll(), "the load ended before the last change")
                self.write({**self.config, "schedule": {"policy": policy}})
                aggregator.process.send_signal(signal.SIGHUP)
                self.await_samples(aggregator, {self.policy(policy): 1})
            report = json.loads(load.communicate(timeout=PATIENCE)[0])
        self.assertEqual((report["blocks"], report["errors"], report["bad_bytes"]), (4000, 0, 0))
        self.assertEqual(metric(aggregator, self.APPLIED), len(policies))
        self.assertEqual(metric(aggregator, self.policy("unscheduled")), 0)
        self.await_samples(aggregator, {"sluice_in_flight_bytes": 0, "sluice_in_flight_calls": 0})

    def test_what_needs_a_restart_is_refused_with_all_the_rest(self):
        aggregator = self.start_configured()
        self.write({**self.config, "drain_timeout": "1s", "link": {"buffer": "64kb"}, "reflection": True})
        self.await_samples(aggregator, {self.REFUSED: 1})
        self.assertEqual(metric(aggregator, "sluice_budget_bytes"), 32 * 1024)
        self.assertIn("drain_timeout", aggregator.text())
        self.assertIn("reflection", aggregator.text())
        self.write({**self.config, "link": {"buffer": "64kb"}})
        self.await_samples(aggregator, {self.APPLIED: 1, "sluice_budget_bytes": 64 * 1024})

    def test_a_file_that_is_wrong_or_gone_keeps_the_config_in_force(self):
        aggregator = self.start_configured()
        wrong = ['{"listen": ', '{"wrokers": []}', {**self.config, "link": {"buffer": "32kilo"}},
                 {**self.config, "workers": []}, {**self.config, "attempts": 1000},
                 {**self.config, "schedule": {"policy": "fastest"}}, {**self.config, "log_level": "loud"}]
        for count, config in enumerate(wrong):
            self.write(config)
            self.await_samples(aggregator, {self.INVALID: count + 1})
        for word in ("wrokers", "32kilo", "attempts is 1000", 'schedule.policy: policy: \\"fastest\\" is not known',
                     "log_level"):
            self.assertIn(word, aggregator.text())
        self.assertEqual(metric(aggregator, self.policy("grants")), 1)
        os.remove(self.path("config.json"))
        self.await_samples(aggregator, {self.INVALID: len(wrong) + 1})
        self.reads_right(aggregator)
        self.assertEqual(metric(aggregator, self.APPLIED), 0)

    def test_a_change_while_a_file_of_tls_is_wrong_changes_nothing(self):
        authority = Authority(self.path("."), "ca")
        self.config["tls"] = {"ca": authority.file}
        self.write(self.config)
        aggregator = self.start_configured()
        with open(authority.file, "w", encoding="utf-8"):
            pass
        self.write({**self.config, "workers": self.workers.addresses[:2], "link": {"buffer": "64kb"}})
        wait_until(lambda: metric(aggregator, self.REFUSED) + metric(aggregator, self.INVALID) == 1, "the refusal")
        self.assertIn(authority.file, aggregator.text())
        self.assertEqual(metric(aggregator, self.APPLIED), 0)
        self.assertEqual(metric(aggregator, "sluice_budget_bytes"), 32 * 1024)
        self.assertEqual(metric(aggregator, "sluice_workers_wanted"), WORKERS)

    def test_a_flag_still_wins(self):
        aggregator = self.start_configured("--buffer", "20kb", "--attempts", "3")
        self.write({**self.config, "link": {"buffer": "64kb", "capacity": "3gbit"}})
        self.await_samples(aggregator, {self.APPLIED: 1, "sluice_link_capacity_bytes_per_second": 375e6})
        self.assertEqual(metric(aggregator, "sluice_budget_bytes"), 20 * 1024)

    def test_hangup_reloads_at_once(self):
        self.write({**self.config, "reload_interval": "0s"})
        aggregator = self.start_configured()
        self.write({**self.config, "reload_interval": "0s", "log_level": "debug"})
        aggregator.process.send_signal(signal.SIGHUP)
        self.await_samples(aggregator, {self.APPLIED: 1})
        aggregator.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the config is the one in force" in aggregator.text(), "the second signal")
        self.assertEqual(metric(aggregator, self.APPLIED), 1)

    def test_workers_may_come_and_go(self):
        self.write({**self.config, "workers": self.workers.addresses[:2]})
        aggregator = self.start_configured()
        self.await_samples(aggregator, {"sluice_workers_wanted": 2, "sluice_workers_connected": 2})
        self.assertIn(b"this reader has 2", self.cat(aggregator, "data").stderr)
        self.write(self.config)
        self.await_samples(aggregator, {"sluice_workers_wanted": 4, "sluice_workers_connected": 4})
        self.reads_right(aggregator)
        self.assertEqual(metric(aggregator, "sluice_worker_reconnect_seconds_count"), 0)
        self.write({**self.config, "workers": self.workers.addresses[:1]})
        self.await_samples(aggregator, {"sluice_workers_wanted": 1, "sluice_workers_connected": 1})


class RollingRestartTest(FollowingTest):
    """Reads succeed while every program is restarted, one after the other."""

    REPLICAS = 'sluice_goodput_bytes_total{worker_kind="replica"}'

    def load_until(self, aggregator, done):
        """Runs one load after another until `done` is set, and returns their reports."""
        reports = []
        while not done.is_set():
            result = run("sluice-load", "--aggregator", aggregator, "--file", "twice", "--clients", "4", "--blocks",
                         "50", "--compare", self.path("input"))
            reports.append(json.loads(result.stdout))
        return reports

    def under_load(self, aggregator, action):
        done = threading.Event()
        reports = []
        loader = threading.Thread(target=lambda: reports.extend(self.load_until(aggregator, done)))
        loader.start()
        try:
            action()
        finally:
            done.set()
            loader.join()
        self.assertGreater(sum(report["blocks"] for report in reports), 0)
        samples = {report["error_sample"] for report in reports}
        self.assertEqual((sum(report["errors"] for report in reports), samples), (0, {""}))
        self.assertEqual(sum(report["bad_bytes"] for report in reports), 0)

    def test_no_read_fails_while_workers_are_restarted(self):
        for policy in ("grants", "rolling"):
            workers = [self.start_worker("127.0.0.1:0") for _ in range(WORKERS)]
            aggregator = self.start_aggregator([worker.addresses[0] for worker in workers], "--admin", "127.0.0.1:0",
                                               "--policy", policy)

            def restart_all():
                for index, worker in enumerate(workers):
                    self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})
                    self.assertEqual(worker.terminate(), 0)
                    self.await_samples(aggregator, {"sluice_workers_connected": WORKERS - 1})
                    before = metric(aggregator, self.REPLICAS)
                    wait_until(lambda: metric(aggregator, self.REPLICAS) > before, "answers of replicas")
                    workers[index] = self.start_worker(worker.addresses[0])
                self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})

            self.under_load(aggregator.addresses[0], restart_all)
            self.assertEqual(metric(aggregator, "sluice_worker_reconnect_seconds_count"), WORKERS)

    def test_no_read_fails_while_aggregators_are_restarted(self):
        workers = self.start_workers()
        aggregators = [self.start_aggregator(workers.addresses, "--drain_delay", "100ms") for _ in range(2)]
        addresses = [aggregator.addresses[0] for aggregator in aggregators]

        def restart_all():
            for index, aggregator in enumerate(aggregators):
                self.assertEqual(aggregator.terminate(), 0)
                aggregators[index] = self.start_aggregator(workers.addresses, listen=addresses[index])
                self.reads_right(aggregators[index])

        self.under_load("ipv4:" + ",".join(addresses), restart_all)


class NamesTest(FollowingTest):
    """Workers behind names that change, in a network and with a name server of the test's own."""

    PORT = 7000

    def setUp(self):
        super().setUp()
        self.names = NameServer("127.0.0.53")
        self.addCleanup(self.names.close)

    @staticmethod
    def name(worker):
        return f"sluice-worker-{worker}.sluice-workers"

    def start_pod(self, worker, network=1):
        """Starts a worker at an address that is not in the aggregator's config."""
        address = f"127.0.{network}.{worker + 1}"
        pod = self.start_worker(f"{address}:{self.PORT}")
        self.names.set(self.name(worker), address)
        return pod

    def stop_pod(self, worker, pod):
        self.names.set(self.name(worker))
        self.assertEqual(pod.terminate(), 0)

    def start_following(self, workers):
        return self.start("sluice-aggregator", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers",
                          f"sluice-worker-{workers}.sluice-workers:{self.PORT}")

    def await_asked(self, name, times):
        asked = self.names.asked(name)
        wait_until(lambda: self.names.asked(name) >= asked + times, f"{name} to be asked for")

    def test_a_worker_that_comes_back_at_another_address_is_used_again(self):
        pods = [self.start_pod(worker) for worker in range(WORKERS)]
        aggregator = self.start_following("{0..3}")
        self.reads_right(aggregator)
        self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})
        # The second worker is away for so long that gRPC's own backoff would no longer look up its name for a while.
        for worker, times in ((2, 4), (0, 12)):
            self.stop_pod(worker, pods[worker])
            self.await_samples(aggregator, {"sluice_workers_connected": WORKERS - 1})
            self.reads_right(aggregator, "twice")
            self.await_asked(self.name(worker), times)
            self.start_pod(worker, network=2)
            started = time.monotonic()
            self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})
            seconds = time.monotonic() - started
            print(f"found after {seconds:.1f} s", file=sys.stderr)
            self.assertLess(seconds, 15)
            self.reads_right(aggregator)
        self.assertEqual(metric(aggregator, "sluice_worker_reconnect_seconds_count"), 2)

    def test_a_worker_that_moves_without_a_gap_is_used_again(self):
        pods = [self.start_pod(worker) for worker in range(WORKERS)]
        aggregator = self.start_following("{0..3}")
        self.reads_right(aggregator)
        self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})
        self.start_pod(1, network=2)
        self.assertEqual(pods[1].terminate(), 0)
        self.await_samples(aggregator, {"sluice_workers_connected": WORKERS,
                                        "sluice_worker_reconnect_seconds_count": 1})
        self.reads_right(aggregator)

    def test_an_open_range_grows_with_the_names_and_does_not_shrink(self):
        aggregator = self.start_following("{0..}")
        result = self.cat(aggregator, "data")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"no worker is known yet", result.stderr)
        self.assertIn(self.name(0), aggregator.text())
        with self.assertRaises(urllib.error.HTTPError) as unready:
            fetch(aggregator, "/healthz")
        unready.exception.close()
        self.assertEqual(unready.exception.code, 503)

        for workers in (2, WORKERS):
            for worker in range(workers - 2, workers):
                self.start_pod(worker)
            self.await_samples(aggregator, {"sluice_workers_wanted": workers, "sluice_workers_connected": workers})
            self.assertEqual(fetch(aggregator, "/healthz").text.strip(), "ok")
        self.reads_right(aggregator)
        self.assertEqual(metric(aggregator, "sluice_worker_reconnect_seconds_count"), 0)

        # A pod in the middle loses its name during a restart, and the name server may fail altogether.
        self.names.set(self.name(1))
        self.await_asked(self.name(WORKERS), 2)
        self.names.fail(True)
        self.await_asked(self.name(WORKERS), 2)
        wait_until(lambda: "workers cannot be looked up" in aggregator.text(), "the log to say so")
        self.assertEqual(metric(aggregator, "sluice_workers_wanted"), WORKERS)
        self.reads_right(aggregator)

    def test_each_address_of_a_name_is_a_worker_of_a_fan_out(self):
        addresses = [f"127.0.3.{number}" for number in (1, 2, 3)]
        for address in addresses:
            self.start_worker(f"{address}:{self.PORT}")
        self.names.set("stores", *reversed(addresses))
        # The workers lack this method and return UNIMPLEMENTED, which shows that each received a request.
        result = run("fan_out", f"dns+stores:{self.PORT}")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"0 of 3 shards: UNIMPLEMENTED", result.stdout)
        self.names.set("stores")
        result = run("fan_out", f"dns+stores:{self.PORT}")
        self.assertIn(b'UNAVAILABLE: no worker is known yet: workers: "dns+stores:7000": ', result.stdout)

    def test_it_starts_with_all_workers_that_have_a_name(self):
        for worker in range(WORKERS):
            self.start_pod(worker)
        self.reads_right(self.start_following("{0..}"))


class DeadPeerTest(FollowingTest):
    """A worker behind a cable that is cut: no packet reports that it is gone."""

    def setUp(self):
        super().setUp()
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read line"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.addCleanup(self.end_holder)
        self.holder.stdout.readline()
        self.ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(self.holder.pid))
        self.ip("address", "add", "10.7.0.1/24", "dev", "here")
        self.ip("link", "set", "here", "up")
        self.there("ip", "address", "add", "10.7.0.2/24", "dev", "there")
        self.there("ip", "link", "set", "there", "up")

    def end_holder(self):
        self.holder.communicate()

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True)

    def inside(self, *command):
        return ["nsenter", "--target", str(self.holder.pid), "--net", *command]

    def there(self, *command):
        subprocess.run(self.inside(*command), check=True)

    def start_there(self, listen):
        ready = self.path("there.ready")
        worker = subprocess.Popen(self.inside(program("sluice-worker"), "--data", self.path("stripes"), "--listen",
                                              listen, "--ready_file", ready, "--think_time", "50ms"))
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        wait_until(lambda: os.path.exists(ready), "the worker to serve")

    def test_it_is_noticed_in_time_and_reads_go_to_its_replica(self):
        self.start_there("10.7.0.2:7000")
        here = self.start_workers(count=WORKERS - 1)
        aggregator = self.start_aggregator(["10.7.0.2:7000", *here.addresses], "--admin", "127.0.0.1:0",
                                           "--sru_timeout", "1000s", "--block_timeout", "1000s")
        self.reads_right(aggregator, "twice")
        with subprocess.Popen([program("sluice-cat"), "--aggregator", aggregator.addresses[0], "twice"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cat:
            wait_until(lambda: metric(aggregator, "sluice_ungranted_calls") > 0, "the worker to think")
            self.there("ip", "link", "set", "there", "down")
            started = time.monotonic()
            out, err = cat.communicate(timeout=PATIENCE)
            seconds = time.monotonic() - started
        print(f"noticed after {seconds:.1f} s", file=sys.stderr)
        self.assertEqual((cat.returncode, err), (0, b""))
        self.assertTrue(out == self.source)
        self.assertLess(seconds, 25)
        self.await_samples(aggregator, {"sluice_workers_connected": WORKERS - 1})
        self.there("ip", "link", "set", "there", "up")
        self.await_samples(aggregator, {"sluice_workers_connected": WORKERS})
        self.reads_right(aggregator)


def enter_network():
    """Enters namespaces in which the test may act as any user, because the name server must bind the port of name
    servers."""
    if os.environ.get(_INSIDE):
        return
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: this machine allows no namespaces of one's own (unshare)", file=sys.stderr)
        sys.exit(_UNSUPPORTED)
    os.environ[_INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


def set_up_network():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("resolv.conf", "nameserver 127.0.0.53\noptions timeout:1 attempts:2\n"),
                           ("nsswitch.conf", "hosts: files dns\n")):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            subprocess.run(["mount", "--bind", path, f"/etc/{name}"], check=True)


if __name__ == "__main__":
    if any(argument.startswith(("NamesTest", "DeadPeerTest")) for argument in sys.argv):
        enter_network()
        set_up_network()
    main()
