#!/usr/bin/env python3
"""Checks that every program accepts its config from its ConfigMap, with the flags of its manifest: config_test.py
FOLDER_OF_PROGRAMS"""

import collections
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402
from manifests import containers, find  # noqa: E402

_PROGRAMS = pathlib.Path()


def configured(documents):
    """Yields (workload, container, config folder in the container, ConfigMap) of each container with a config."""
    for workload in manifests.workloads(documents):
        for volume, config in manifests.config_volumes(workload):
            for container in manifests.servers(workload):
                for mount in container.get("volumeMounts", []):
                    if mount["name"] == volume:
                        yield workload, container, mount["mountPath"], find(documents, "ConfigMap", config)


def make_certificate(folder):
    """Makes the files of a Secret: a certificate that is its own authority."""
    folder = pathlib.Path(folder)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / "tls.key")
    out = ("-out", folder / "tls.crt")
    subprocess.run(["openssl", "req", "-x509", *key, "-subj", "/CN=own", *out], check=True, capture_output=True)
    shutil.copy(folder / "tls.crt", folder / "ca.crt")


def check(container, folder, data):
    """Returns the program's check of the config, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="sluice-config-") as own:
        for file, text in data.items():
            (pathlib.Path(own) / file).write_text(text)
        program, *arguments = container["command"] + container.get("args", [])
        arguments = [re.sub(rf"{folder}(?=/|$)", own, argument) for argument in arguments]
        if manifests.tls_flags(container):
            make_certificate(own)
            arguments = [argument.replace("/etc/sluice-tls", own) for argument in arguments]
        command = [_PROGRAMS / pathlib.Path(program).name, *arguments, "--check-config"]
        if pathlib.Path(program).name == "sluice-worker":
            command += ["--data", own]  # the folder of the container is not on this machine
        return subprocess.run(command, capture_output=True, check=False, text=True)


def size(text):
    """Returns the bytes of "64mb" in a config, or of "1Gi" in a manifest."""
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]*)", text).groups()
    return int(number) << {"k": 10, "m": 20, "g": 30}[unit.lower()[0]]


def memory_bound(program, config):
    """Returns what the program may take by its own bounds: docs/guides/size.md."""
    itself, grpc, calls, probes = 48 << 20, 256 << 20, 256 << 20, 64 << 20
    if program == "sluice-worker":
        return itself + grpc + 2 * calls + probes  # gRPC holds a message of each call again
    if program == "sluice-aggregator":
        mid_level = config.get("mid_level")
        cache = size(mid_level.get("cache", "64mb")) + 2 * calls + (64 << 20) if mid_level is not None else 0
        return itself + grpc + size(config.get("read_memory", "1gb")) + cache
    if program == "sluice-proxy":
        limits = config.get("limits", {})  # without a limit, the proxy derives it from the memory that it has
        return itself + limits.get("connections", 0) * (20 << 10) + limits.get("calls", 0) * (6 << 10) + \
            3 * size(limits.get("held", "0mb"))
    return itself


class ConfigTest(unittest.TestCase):
    def test_programs_take_their_configs(self):
        tree, proxy = {"sluice-aggregator", "sluice-worker", "sluice-link"}, {"sluice-proxy"}
        for overlay in manifests.WITH_CONFIGS:
            expected = {"proxy": proxy, "proxy+mtls": proxy, "proxy-mtls": tree | proxy}.get(overlay, tree)
            checked = set()
            for workload, container, folder, config in configured(manifests.installed(overlay)):
                with self.subTest(overlay=overlay, workload=manifests.name(workload)):
                    result = check(container, folder, config["data"])
                    self.assertEqual((result.returncode, result.stdout), (0, "config ok\n"), result.stderr)
                    checked.add(container["image"] and pathlib.Path(container["command"][0]).name)
            self.assertEqual(checked, expected)

    # Slow clients may make each program hold all that its own bounds permit. The kernel must not end it before that.
    def test_memory_limits_are_above_the_bounds_of_the_programs(self):
        checked = set()
        for overlay in ("production", "proxy"):
            for workload, container, _, config in configured(manifests.installed(overlay)):
                program = pathlib.Path(container["command"][0]).name
                limit = container["resources"]["limits"]["memory"]
                with self.subTest(overlay=overlay, workload=manifests.name(workload), limit=limit):
                    (text,) = [text for file, text in config["data"].items() if file.endswith(".json")]
                    self.assertLessEqual(memory_bound(program, json.loads(text)), size(limit))
                    checked.add(program)
        self.assertLessEqual({"sluice-aggregator", "sluice-worker", "sluice-proxy"}, checked)

    def test_a_typo_would_be_found(self):
        _, container, folder, config = next(configured(manifests.installed("dev")))
        data = {file: json.dumps({**json.loads(text), "listens": "x"}) for file, text in config["data"].items()}
        result = check(container, folder, data)
        self.assertEqual(result.returncode, 2)
        self.assertIn("listens", result.stderr)

    def test_a_missing_flag_of_tls_would_be_found(self):
        documents = manifests.installed("dev-mtls")
        _, container, folder, config = next(each for each in configured(documents) if "key" in manifests.tls_flags(each[1]))
        for words in (container["command"], container.get("args", [])):
            words[:] = [each for each in words if not each.startswith("--tls-key=")]
        result = check(container, folder, config["data"])
        self.assertEqual(result.returncode, 2)
        self.assertIn("tls.key", result.stderr)

    def test_clients_of_a_proxy_find_it_where_it_listens(self):
        documents = manifests.installed("proxy")
        configs = {manifests.name(workload): json.loads(config["data"]["proxy.json"])
                   for workload, _, _, config in configured(documents)}
        hosts = {"node": "$(HOST_IP)", "sidecar": "127.0.0.1"}
        clients = [each for each in manifests.workloads(documents)
                   if manifests.pod(each)["metadata"]["labels"].get("sluice/proxy") in hosts]
        self.assertEqual(len(clients), 4)
        for workload in clients:
            with self.subTest(workload=manifests.name(workload)):
                way = manifests.pod(workload)["metadata"]["labels"]["sluice/proxy"]
                (container,) = containers(workload)
                (proxy,) = [each["value"] for each in container["env"] if each["name"].lower().endswith("proxy")]
                self.assertEqual(proxy, f"http://{hosts[way]}:7400")
                config = configs["DaemonSet sluice-proxy-node" if way == "node" else manifests.name(workload)]
                self.assertEqual(config["listen"][0], "0.0.0.0:7400" if way == "node" else "127.0.0.1:7400")
                workers = next(each for each in container["args"] if each.startswith("--workers=")).partition("=")[2]
                for worker in workers.split(","):
                    self.assertTrue(any(fnmatch.fnmatch(worker, pattern) for pattern in config["workers"]), worker)
        daemon = find(documents, "DaemonSet", "sluice-proxy-node")
        ports = {port["containerPort"]: port.get("hostPort") for port in containers(daemon)[0]["ports"]}
        self.assertEqual(ports[7400], 7400)
        socket = configs[manifests.name(daemon)]["listen"][1].removeprefix("unix:")
        self.assertEqual([str(pathlib.Path(socket).parent)], manifests.host_paths(daemon))

    def test_redirected_clients_have_no_setting_and_are_not_exempt(self):
        documents = manifests.installed("proxy")
        job = find(documents, "Job", "fan-out-python-redirect")
        (client,) = containers(job)
        self.assertNotIn("env", client)
        (rules,) = [each["data"]["redirect.nft"] for each in manifests.of_kind(documents, "ConfigMap")
                    if "redirect.nft" in each["data"]]
        proxy = next(each for each in manifests.init_containers(job) if manifests.is_proxy(each))
        self.assertIn(f"define proxy = {proxy['securityContext']['runAsUser']}\n", rules)
        self.assertNotEqual(manifests.pod(job)["spec"]["securityContext"]["runAsUser"], proxy["securityContext"]["runAsUser"])
        config = json.loads(find(documents, "ConfigMap", "sluice-proxy-redirect-config")["data"]["proxy.json"])
        port = re.fullmatch(r"redirected:\[::\]:(\d+)", config["listen"][0])[1]
        self.assertEqual(re.findall(r"redirect to :(\d+)", rules), [port, port])

    # Pods run as other users than the proxy, so every user may connect, but only to workers.
    def test_whoever_mounts_the_socket_of_a_node_may_call_workers_alone(self):
        documents = manifests.installed("proxy")
        config = json.loads(find(documents, "ConfigMap", "sluice-proxy-node-config")["data"]["proxy.json"])
        self.assertTrue(any(each.startswith("unix:") for each in config["listen"]))
        self.assertEqual(config["socket_mode"], "0666")
        self.assertIs(config["tunnels"]["to_others"], False)

    def test_those_who_ask_find_services_and_workers_that_exist(self):
        for overlay in manifests.WITH_CONFIGS:
            documents = manifests.installed(overlay)
            for workload, pods, service, port in manifests.asked(documents):
                with self.subTest(overlay=overlay, workload=manifests.name(workload), service=service):
                    found = find(documents, "Service", service)
                    self.assertIsNotNone(found)
                    self.assertEqual(found["spec"]["ports"][0]["port"], port)
                    if pods:  # the pods are those of a StatefulSet, named by their ordinals
                        self.assertEqual(find(documents, "StatefulSet", service)["spec"]["serviceName"], service)

    def test_the_example_that_fills_a_volume_verifies_what_is_on_it(self):
        verify = containers(find(manifests.examples(), "Job", "sluice-load-a-0"))[0]
        with tempfile.TemporaryDirectory(prefix="sluice-volume-") as folder:
            (pathlib.Path(folder) / "file").write_bytes(bytes(1_000_000))
            stripe = [_PROGRAMS / "sluice-stripe", "--workers=2x4", f"--out={folder}/striped", f"{folder}/file"]
            subprocess.run(stripe, capture_output=True, check=True)
            volume = pathlib.Path(folder) / "volume"
            shutil.copytree(f"{folder}/striped/mla-0000/worker-0000", volume / "worker-0000")
            arguments = [each.replace("/var/lib/sluice", str(volume)) for each in verify["args"]]
            command = [_PROGRAMS / pathlib.Path(verify["command"][0]).name, *arguments]
            subprocess.run(command, capture_output=True, check=True)
            longest = max((path for path in volume.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
            longest.write_bytes(longest.read_bytes()[:-1] + b"?")
            self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 1)

    # A list that is too short makes aggregators reject files over all workers. An open range has the same effect while
    # a pod has no name, on aggregators that start at that time: when a node is drained, both may happen.
    def test_aggregators_ask_as_many_workers_as_there_are(self):
        for overlay in ("dev", "production"):
            documents = manifests.installed(overlay)
            asked = collections.defaultdict(set)
            for workload, pods, service, _ in manifests.asked(documents):
                asked[manifests.name(workload), service] |= pods
            by_name = {key: pods for key, pods in asked.items() if pods}
            self.assertEqual(len({service for _, service in by_name}), len(manifests.of_kind(documents, "StatefulSet")))
            for (workload, service), pods in by_name.items():
                with self.subTest(overlay=overlay, workload=workload):
                    replicas = find(documents, "StatefulSet", service)["spec"]["replicas"]
                    self.assertEqual(pods, {f"{service}-{ordinal}" for ordinal in range(replicas)})

    def test_all_aggregators_of_a_node_lease_from_the_socket_that_is_there(self):
        for overlay in ("dev", "production"):
            documents = manifests.installed(overlay)
            daemon = find(documents, "DaemonSet", "sluice-link")
            ((_, config),) = manifests.config_volumes(daemon)
            socket = json.loads(find(documents, "ConfigMap", config)["data"]["link.json"])["socket"]
            applications = []
            deployments = manifests.selected(documents, {"matchLabels": {"app.kubernetes.io/name": "sluice-aggregator"}})
            for deployment in deployments:
                arguments = containers(deployment)[0]["args"]
                self.assertIn(f"--shared-link-socket={socket}", arguments)
                self.assertEqual(manifests.host_paths(deployment), manifests.host_paths(daemon))
                applications += [each for each in arguments if each.startswith("--shared-link-application=")]
            self.assertEqual(len(set(applications)), len(deployments))
            self.assertGreaterEqual(len(deployments), 3)


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
