#!/usr/bin/env python3
"""Tests the Helm chart that deploy/helm/make_chart makes: it renders what Kustomize does, and its values have an effect."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import needs  # noqa: E402

needs.helm()

import manifests  # noqa: E402
from manifests import find  # noqa: E402

_MAKER = manifests.REPOSITORY / "deploy/helm/make_chart"
_KUBERNETES = "--kube-version=1.30.0"  # the oldest; a helm that go built assumes a version of its own
_PARTS = {"tree": "production", "monitoring": "monitoring"}  # and the overlays that they come from


def load_maker():
    loader = importlib.machinery.SourceFileLoader("make_chart", str(_MAKER))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_chart", loader))
    loader.exec_module(module)
    return module


def normal(document):
    """Kustomize appends a hash to some names, where the chart has a checksum in an annotation. A config counts by its
    content."""
    document = json.loads(re.sub(r"(-config(-[ab])?)-[bcdfghkmt2-9]{10}\b", r"\1", json.dumps(document)))
    annotations = document.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    if annotations.pop("checksum/config", None):
        assert len(annotations) == 0
        del document["spec"]["template"]["metadata"]["annotations"]
    if document["kind"] == "ConfigMap":
        document["data"] = {name: json.loads(text) for name, text in document["data"].items()}
    return document


class HelmTest(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-helm-")
        cls.addClassCleanup(folder.cleanup)
        cls.chart = f"{folder.name}/sluice"
        cls.environment = {**os.environ, **{f"HELM_{kind}_HOME": folder.name for kind in ("CACHE", "CONFIG", "DATA")}}
        subprocess.run([_MAKER, folder.name], check=True)

    def helm(self, *arguments):
        return subprocess.run(["helm", *arguments], capture_output=True, check=False, env=self.environment, text=True)

    def template(self, **values):
        flags = [word for name, value in values.items() for word in ("--set-json", f"{name.replace('__', '.')}={json.dumps(value)}")]
        result = self.helm("template", "sluice", self.chart, "--namespace", "sluice", _KUBERNETES, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [document for document in manifests.yaml.safe_load_all(result.stdout) if document]

    def only(self, part, **values):
        return self.template(**{f"{each}__enabled": each == part for each in load_maker().PARTS}, **values)

    def test_lint_finds_nothing(self):
        mtls = [{"mtls.enabled": "true", "mtls.certificates": each} for each in load_maker().CERTIFICATES]
        proxies = {"tree.enabled": "false", "proxyNode.enabled": "true"}
        for values in ({}, proxies, {"monitoring.enabled": "true"}, *mtls, *({**proxies, **each} for each in mtls)):
            flags = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
            result = self.helm("lint", "--strict", _KUBERNETES, self.chart, *flags)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def assert_same_objects(self, made, wanted):
        # The components name their images alone, and tests of overlays give them a tag.
        names = re.compile(r'"image": "(?:registry\.example\.com/)?(sluice[a-z-]*)(?::0\.1\.0)?"')
        wanted = json.loads(names.sub(r'"image": "registry.example.com/\1:0.1.0"', json.dumps(wanted)))
        made, wanted = ([normal(each) for each in documents if each["kind"] != "Namespace"] for documents in (made, wanted))
        self.assertEqual({manifests.name(each): each for each in made}, {manifests.name(each): each for each in wanted})
        self.assertEqual(len(made), len(wanted))

    def test_it_renders_what_kustomize_does(self):
        maker = load_maker()
        for part in maker.PARTS:
            with self.subTest(part):
                self.assert_same_objects(self.only(part), maker.render(part))
        self.assertGreater(len(self.only("tree")), 20)

    def test_with_mtls_it_renders_what_kustomize_does(self):
        maker = load_maker()
        for certificates in ("private-ca", "cert-manager"):
            values = {"mtls__enabled": True, "mtls__certificates": certificates}
            with self.subTest(certificates):
                self.assert_same_objects(self.only("tree", **values), manifests.render(f"production+{certificates}"))
                wanted = maker.render("proxyNode", "mtls/programs") + maker.render_certificates(certificates)
                self.assert_same_objects(self.only("proxyNode", **values), wanted)
        made = self.only("tree", mtls__enabled=True, mtls__certificates="existing")
        self.assert_same_objects(made, maker.render("tree", "mtls/programs"))
        self.assertEqual(manifests.of_kind(made, "Secret", "Certificate"), [])
        self.assertEqual(self.only("monitoring", mtls__enabled=True, mtls__certificates="existing"), self.only("monitoring"))

    def test_without_mtls_nothing_of_it_is_there(self):
        text = json.dumps(self.template())
        self.assertNotIn("tls", text)
        self.assertEqual(text, json.dumps(self.template(mtls__certificates="cert-manager")))

    def test_mtls_follows_its_values(self):
        values = {"mtls__enabled": True, "mtls__image": {"repository": "r/c", "tag": "8"}}
        documents = self.only("tree", **values, tree__workerA__replicas=5)
        for kind in ("Job", "CronJob"):
            (container,) = manifests.containers(find(documents, kind, "sluice-certificates"))
            self.assertEqual(container["image"], "r/c:8")
        self.assertEqual(find(documents, "StatefulSet", "sluice-worker-a")["spec"]["replicas"], 5)
        own = "own"  # the namespace of a release is part of the names that clients of its aggregators call
        result = self.helm("template", "sluice", self.chart, "--namespace", own, _KUBERNETES, "--set", "mtls.enabled=true",
                           "--set", "mtls.certificates=cert-manager")
        certificate = find(list(manifests.yaml.safe_load_all(result.stdout)), "Certificate", "sluice-tls-high-level")
        self.assertEqual(certificate["spec"]["dnsNames"], ["sluice", "sluice.own", "sluice.own.svc", "localhost"])
        result = self.helm("template", "sluice", self.chart, "--namespace", own, _KUBERNETES, "--set", "mtls.enabled=true")
        (subject,) = find(list(manifests.yaml.safe_load_all(result.stdout)), "RoleBinding", "sluice-certificates")["subjects"]
        self.assertEqual(subject["namespace"], own)

    def test_certificates_of_an_unknown_kind_are_refused(self):
        result = self.helm("template", "sluice", self.chart, _KUBERNETES, "--set", "mtls.certificates=vault")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "(?s)mtls.certificates.*must be one of.*private-ca.*cert-manager.*existing")

    def test_its_sources_are_the_overlays(self):
        maker = load_maker()
        for part, overlay in _PARTS.items():
            wanted = [document for document in manifests.render(overlay) if document["kind"] != "Namespace"]
            self.assertEqual(maker.render(part), wanted)

    def test_replicas_change_the_workers_that_an_aggregator_calls(self):
        documents = self.only("tree", tree__workerA__replicas=5)
        self.assertEqual(find(documents, "StatefulSet", "sluice-worker-a")["spec"]["replicas"], 5)
        for letter, last in (("a", 4), ("b", 31)):
            config = json.loads(find(documents, "ConfigMap", f"sluice-mla-config-{letter}")["data"]["aggregator.json"])
            self.assertEqual(config["workers"], [f"sluice-worker-{letter}-{{0..{last}}}.sluice-worker-{letter}:7000"])

    def test_a_field_of_a_config_can_be_set(self):
        before, after = self.only("tree"), self.only("tree", tree__workerA__config__drain_timeout="7s", tree__hla__config__link__capacity="25gbit")
        config = json.loads(find(after, "ConfigMap", "sluice-hla-config")["data"]["aggregator.json"])
        self.assertEqual((config["link"]["capacity"], config["link"]["buffer"]), ("25gbit", "256kb"))
        config = json.loads(find(after, "ConfigMap", "sluice-worker-config-a")["data"]["worker.json"])
        self.assertEqual(config["drain_timeout"], "7s")

        def checksum(documents, worker):
            pod = manifests.pod(find(documents, "StatefulSet", worker))
            return pod["metadata"]["annotations"]["checksum/config"]

        self.assertNotEqual(checksum(before, "sluice-worker-a"), checksum(after, "sluice-worker-a"))
        self.assertEqual(checksum(before, "sluice-worker-b"), checksum(after, "sluice-worker-b"))

    def test_image_volume_and_prometheus_can_be_set(self):
        volume = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Ti"}}}
        documents = self.template(
            image={"repository": "r/s", "tag": "7"}, tree__workerB__volume=volume, monitoring__enabled=True,
            prometheusNamespace="watch", monitoring__release="own",
        )  # fmt: skip
        text = json.dumps(documents)
        self.assertNotIn("registry.example.com", text)
        self.assertIn('"r/s:7"', text)
        (claim,) = find(documents, "StatefulSet", "sluice-worker-b")["spec"]["volumeClaimTemplates"]
        self.assertEqual(claim["spec"], volume)
        policy = find(documents, "NetworkPolicy", "metrics")["spec"]["ingress"][0]["from"][0]
        self.assertEqual(policy["namespaceSelector"]["matchLabels"], {"kubernetes.io/metadata.name": "watch"})
        self.assertEqual(find(documents, "PodMonitor", "sluice")["metadata"]["labels"]["release"], "own")

    def test_a_tree_and_proxies_in_one_namespace_are_refused(self):
        result = self.helm("template", "sluice", self.chart, _KUBERNETES, "--set", "proxyNode.enabled=true")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("install the chart twice", result.stderr)

    def test_a_chart_is_not_made_over_another(self):
        result = subprocess.run([_MAKER, pathlib.Path(self.chart).parent], capture_output=True, check=False, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is there already", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
