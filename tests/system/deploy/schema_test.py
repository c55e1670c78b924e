#!/usr/bin/env python3
"""Checks every object of every overlay strictly against the schema of its kind: no field may be unknown to its API.
make_schemas.py creates the schemas of Kubernetes and cert-manager from an API server. The schemas of the Prometheus operator cover the
fields in use, by its documentation."""

import json
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402
import needs  # noqa: E402
from manifests import containers, find  # noqa: E402

jsonschema = needs.module("jsonschema", "python3-jsonschema")

_SCHEMAS = pathlib.Path(__file__).resolve().parent / "schemas"


def validators():
    found = {}
    for path in sorted(_SCHEMAS.glob("*.json")):
        schemas = json.loads(path.read_text())
        for kind, definition in schemas["kinds"].items():
            root = {"$ref": f"#/definitions/{definition}", "definitions": schemas["definitions"]}
            found[kind] = jsonschema.Draft7Validator(root)
    return found


_VALIDATORS = validators()


def complaints(document):
    validator = _VALIDATORS.get(f"{document['apiVersion']} {document['kind']}")
    if validator is None:
        return [f"no schema of {document['apiVersion']} {document['kind']}; run make_schemas.py"]
    return [f"{manifests.name(document)}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in validator.iter_errors(document)]


class SchemaTest(unittest.TestCase):
    def test_every_object_is_what_its_api_takes(self):
        for overlay in manifests.OVERLAYS:
            for document in manifests.render(overlay):
                with self.subTest(overlay=overlay, object=manifests.name(document)):
                    self.assertEqual(complaints(document), [])

    def test_examples_are_what_their_api_takes(self):
        for document in manifests.examples():
            with self.subTest(object=manifests.name(document)):
                self.assertEqual(complaints(document), [])

    def test_mistakes_are_found(self):
        mistakes = (
            ("a field that is not known", lambda spec, container: container.update(readinessProb={"grpc": {"port": 1}})),
            ("one further down", lambda spec, container: container["livenessProbe"]["httpGet"].update(ports=1)),
            ("a wrong type", lambda spec, container: spec.update(replicas="2")),
            ("what is required", lambda spec, container: container.pop("name")),
            ("a list that is none", lambda spec, container: container.update(args="--help")),
        )
        for what, mistake in mistakes:
            with self.subTest(what):
                document = find(manifests.render("production"), "Deployment", "sluice-hla")
                mistake(document["spec"], containers(document)[0])
                self.assertNotEqual(complaints(document), [])

    def test_mistakes_in_objects_of_the_operator_are_found(self):
        monitor = find(manifests.render("monitoring"), "PodMonitor", "sluice")
        monitor["spec"]["podMetricsEndpoints"][0]["intervals"] = "15s"
        self.assertNotEqual(complaints(monitor), [])
        rule = find(manifests.render("monitoring"), "PrometheusRule", "sluice")
        rule["spec"]["groups"][0]["rules"][0].pop("expr")
        self.assertNotEqual(complaints(rule), [])

    def test_mistakes_in_objects_of_cert_manager_are_found(self):
        for what, mistake in (("a field that is not known", {"dnsName": ["sluice"]}), ("a wrong type", {"uris": "spiffe://sluice/worker"}),
                              ("a use that does not exist", {"usages": ["server"]})):
            with self.subTest(what):
                certificate = find(manifests.render("production+cert-manager"), "Certificate", "sluice-tls-worker")
                self.assertEqual(complaints(certificate), [])
                certificate["spec"].update(mistake)
                self.assertNotEqual(complaints(certificate), [])

    def test_an_unknown_kind_is_found(self):
        self.assertNotEqual(complaints({"apiVersion": "apps/v1beta1", "kind": "Deployment"}), [])


class PrometheusRuleTest(unittest.TestCase):
    def test_it_is_what_its_generator_makes(self):
        generator = manifests.REPOSITORY / "deploy/monitoring/make_prometheus_rule.py"
        kept = manifests.REPOSITORY / "deploy/overlays/monitoring/prometheus-rule.yaml"
        made = subprocess.run([sys.executable, generator], capture_output=True, check=True, text=True).stdout
        self.assertEqual(made, kept.read_text(), f"run: {generator} > {kept}")

    def test_it_has_all_groups_of_the_rules(self):
        groups = []
        for file in ("recording-rules.yml", "alert-rules.yml"):
            groups += manifests.yaml.safe_load((manifests.REPOSITORY / "deploy/monitoring" / file).read_text())["groups"]
        self.assertEqual(find(manifests.render("monitoring"), "PrometheusRule", "sluice")["spec"]["groups"], groups)


if __name__ == "__main__":
    unittest.main(verbosity=2)
