"""Tests TLS and mTLS of the programs as users run them: the aggregator's listeners, and a worker.

Run as: sluice_tls_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
from certificates import Authority  # noqa: E402
from serving import ServingTest, main, run, wait_until  # noqa: E402


class TlsTest(ServingTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder, "authority")
        self.certificate, self.key = self.authority.issue("server")

    def server_flags(self):
        return "--tls_certificate", self.certificate, "--tls_key", self.key

    def client_flags(self, authority=None):
        certificate, key = (authority or self.authority).issue("client")
        return "--tls_ca", self.authority.file, "--tls_certificate", certificate, "--tls_key", key

    def refused(self, words, name, *flags):
        result = run(name, *flags)
        self.assertEqual(result.returncode, 2, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr.decode())

    def test_bad_flags_and_files_are_named_before_anything_starts(self):
        servers = (("sluice-worker", "--listen", "127.0.0.1:0", "--data", self.folder),
                   ("sluice-aggregator", "--listen", "127.0.0.1:0", "--workers", "a:1"))
        missing = self.path("missing")
        for server in servers:
            self.assertEqual(run(*server, *self.server_flags(), "--check-config").returncode, 0)
            self.refused(["tls.certificate", "without tls.key"], *server, "--tls_certificate", self.certificate)
            self.refused(["tls.key", missing, "No such file"], *server, "--tls_certificate", self.certificate,
                         "--tls_key", missing)
            self.refused(["tls.key", self.authority.key, "is not the key"], *server, "--tls_certificate",
                         self.certificate, "--tls_key", self.authority.key)
            self.refused(["tls.client_ca", missing], *server, *self.server_flags(), "--tls_client_ca", missing)
        self.refused(["--tls_ca"], *servers[0], "--tls_ca", self.authority.file)
        for client in (("sluice-cat", "--aggregator", "a:1", "data"), ("sluice-load", "--aggregator", "a:1", "--file", "f"),
                       ("sluice-calibrate", "--workers", "a:1")):
            self.refused(["tls.ca", missing, "No such file"], *client, "--tls_ca", missing)
            self.refused(["tls.certificate", "without tls.ca"], *client, *self.server_flags())
            self.refused(["--tls_client_ca"], *client, "--tls_client_ca", self.authority.file)

    def test_the_config_has_the_same_fields(self):
        config = self.path("config.json")
        tls = {"certificate": self.certificate, "key": self.key, "clientCa": self.authority.file, "ca": "system",
               "serverName": "worker.example"}
        for name, fields in (("sluice-aggregator", {"listen": "127.0.0.1:0", "workers": ["a:1"], "tls": tls}),
                             ("sluice-worker", {"listen": ["127.0.0.1:0"], "data": self.path("stripes"),
                                                "tls": {key: tls[key] for key in ("certificate", "key", "clientCa")}})):
            with open(config, "w", encoding="utf-8") as file:
                json.dump(fields, file)
            result = run(name, "--config", config, "--check-config")
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.refused(["tls.certificate", "/none"], name, "--config", config, "--tls_certificate", "/none")

    def test_a_file_comes_from_an_aggregator_with_mtls(self):
        aggregator = self.start_both(*self.server_flags(), "--tls_client_ca", self.authority.file)
        result = self.cat(aggregator, *self.client_flags(), "data")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.source)
        load = run("sluice-load", "--aggregator", aggregator.addresses[0], "--file", "data", "--blocks", "3",
                   *self.client_flags())
        self.assertEqual(load.returncode, 0, load.stderr)
        self.assertEqual(json.loads(load.stdout)["errors"], 0)

        without_certificate = ("--tls_ca", self.authority.file)
        of_a_stranger = self.client_flags(Authority(self.folder, "stranger"))
        for flags in ((), without_certificate, of_a_stranger):
            result = self.cat(aggregator, "--timeout", "5s", *flags, "data")
            self.assertEqual((result.returncode, result.stdout), (1, b""))

    def test_a_server_has_to_bear_the_name_that_is_expected(self):
        self.certificate, self.key = self.authority.issue("server", hosts="DNS:aggregator.example")
        aggregator = self.start_both(*self.server_flags())
        trust = ("--tls_ca", self.authority.file)
        self.assertEqual(self.cat(aggregator, "--timeout", "5s", *trust, "data").returncode, 1)
        result = self.cat(aggregator, *trust, "--tls_server_name", "aggregator.example", "data")
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_a_tool_refuses_a_uri_as_the_name_of_a_server(self):
        flags = ("--tls_ca", self.authority.file, "--tls_server_name", "spiffe://example/top")
        result = run("sluice-cat", "--aggregator", "localhost:1", *flags, "data")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"compares DNS names and IP addresses only", result.stderr)

    def test_new_files_are_taken_over_while_it_serves(self):
        aggregator = self.start_both(*self.server_flags())
        other = Authority(self.folder, "other")
        self.assertEqual(self.cat(aggregator, "--tls_ca", self.authority.file, "data").returncode, 0)
        self.assertEqual(self.cat(aggregator, "--timeout", "5s", "--tls_ca", other.file, "data").returncode, 1)
        other.issue("server")
        wait_until(lambda: self.cat(aggregator, "--timeout", "5s", "--tls_ca", other.file, "data").returncode == 0,
                   "the new certificate")

    def rules(self, name, *rules):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"access": rules}, file)
        return "--config", path

    def flags_of(self, name, uri):
        certificate, key = self.authority.issue(name, hosts=f"URI:{uri},DNS:localhost,IP:127.0.0.1")
        return "--tls_ca", self.authority.file, "--tls_certificate", certificate, "--tls_key", key

    def test_rules_of_access_say_who_reads_which_file(self):
        mutual = ("--tls_client_ca", self.authority.file)
        worker = self.start_workers(*self.server_flags(), *mutual, *self.rules(
            "worker.json", {"names": ["spiffe://example/aggregator"], "methods": ["SruService"]}))
        aggregator = self.start_aggregator(worker.addresses, *self.flags_of("aggregator", "spiffe://example/aggregator"),
                                           *mutual, *self.rules(
            "aggregator.json", {"names": ["spiffe://example/reader"], "methods": ["BlockService/Read"], "files": ["da"]},
            {"names": ["spiffe://example/other"], "files": ["other-"]}))
        result = self.cat(aggregator, *self.flags_of("reader", "spiffe://example/reader"), "data")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout == self.source)
        for name, why in (("other", b"access[1].files has no such prefix"),
                          ("stranger", b"no rule of access has this client")):
            result = self.cat(aggregator, *self.flags_of(name, f"spiffe://example/{name}"), "data")
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(f"spiffe://example/{name}, localhost may not call BlockService/Read".encode(), result.stderr)
            self.assertIn(why, result.stderr)
        self.assertIn('msg="a call is refused" client="spiffe://example/stranger, localhost"', aggregator.text())
        # The aggregator's certificate has no rule for the worker's other service, and its clients reach no worker.
        result = run("sluice-calibrate", "--workers", worker.addresses[0], "--max_in_flight", "64kb",
                     *self.flags_of("aggregator", "spiffe://example/aggregator"))
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"access[0].methods", result.stderr)

    def test_a_revoked_certificate_opens_nothing(self):
        crl = self.authority.revoke("crl.pem")
        mutual = ("--tls_client_ca", self.authority.file, "--tls_crl", crl)
        workers = self.start_workers(*self.server_flags(), *mutual)
        aggregator = self.start_aggregator(workers.addresses, *self.flags_of("aggregator", "spiffe://example/aggregator"),
                                           *mutual, "--max_connection_age", "1s")
        reader = self.flags_of("reader", "spiffe://example/reader")
        thief = self.flags_of("thief", "spiffe://example/thief")
        self.assertEqual(self.cat(aggregator, *thief, "data").returncode, 0)
        self.authority.revoke("crl.pem", self.path("thief.pem"))
        wait_until(lambda: self.cat(aggregator, "--timeout", "5s", *thief, "data").returncode == 1, "the new list")
        result = self.cat(aggregator, *reader, "data")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        # A worker is refused in the same way, once the connection to it is made again.
        self.authority.revoke("crl.pem", self.certificate)
        aggregator = self.start_aggregator(workers.addresses, *self.flags_of("aggregator", "spiffe://example/aggregator"),
                                           *mutual, "--connect_timeout", "2s")
        self.assertIn("is revoked", aggregator.text())

    def test_rules_without_effect_are_refused(self):
        worker = ("sluice-worker", "--listen", "127.0.0.1:0", "--data", self.folder)
        self.refused(["access[0].names", "tls.client_ca"], *worker, *self.rules("a.json", {"names": ["a"]}))
        self.refused(["access[0].uids", "Unix socket"], *worker, *self.rules("a.json", {"uids": [1]}))

    def test_a_worker_with_mtls_can_be_calibrated_against(self):
        worker = self.start_workers(*self.server_flags(), "--tls_client_ca", self.authority.file, count=1)
        flags = ("--workers", worker.addresses[0], "--max_in_flight", "64kb")
        result = run("sluice-calibrate", *flags)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"it may expect TLS", result.stderr)
        result = run("sluice-calibrate", *flags, *self.client_flags())
        self.assertIn(result.returncode, (0, 3), result.stderr)
        self.assertIn(b"rtt_min", result.stdout)

    def test_an_aggregator_logs_why_a_worker_is_not_connected(self):
        worker = self.start_workers(*self.server_flags(), count=1)
        aggregator = self.start_aggregator(worker.addresses, "--connect_timeout", "3s")
        self.assertRegex(aggregator.text(), f"worker is not connected.*worker={worker.addresses[0]} .*it may expect TLS")

    def test_a_server_that_others_reach_without_tls_says_so_once(self):
        warning = "other hosts may reach this server, and it has no TLS"
        open_worker = self.start("sluice-worker", "--data", self.path("stripes"), "--listen", "0.0.0.0:0")
        self.assertEqual(open_worker.text().count(warning), 1)
        self.assertIn(f"listen={open_worker.addresses[0]} flag=--tls_certificate", open_worker.text())
        open_aggregator = self.start_aggregator(open_worker.addresses, listen="0.0.0.0:0")
        self.assertEqual(open_aggregator.text().count(warning), 1)
        for quiet in (self.start_both(), self.start_workers("--listen", "0.0.0.0:0", *self.server_flags()),
                      self.start_aggregator(["127.0.0.1:1"], "--connect_timeout", "1s", listen="unix:" + self.path("s"))):
            self.assertNotIn(warning, quiet.text())


if __name__ == "__main__":
    main()
