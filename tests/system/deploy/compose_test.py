#!/usr/bin/env python3
"""Tests the compose files of deploy/compose: against the schema of the specification, and by running their services as
processes: compose_test.py FOLDER_OF_PROGRAMS"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import needs  # noqa: E402

yaml = needs.module("yaml", "python3-yaml")
jsonschema = needs.module("jsonschema", "python3-jsonschema")
# The loader of compose itself, which has the schema.
_SCHEMA = pathlib.Path(needs.module_of_go("github.com/compose-spec/compose-go/v2@v2.4.9"), "schema/compose-spec.json")

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_FILES = sorted((_REPOSITORY / "deploy/compose").glob("*.yaml"))
_RUN = pathlib.Path(__file__).resolve().parent / "run_compose"
_SKIP = 77
_PROGRAMS = pathlib.Path()


def load(file):
    return yaml.safe_load(file.read_text())


def run(file, programs, last):
    result = subprocess.run([sys.executable, _RUN, file, programs, last], capture_output=True, check=False, text=True)
    if result.returncode == _SKIP:
        raise unittest.SkipTest(result.stderr.strip())
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return result.stdout


class ComposeTest(unittest.TestCase):
    def test_they_follow_the_specification(self):
        validator = jsonschema.Draft7Validator(json.loads(_SCHEMA.read_text()))
        for file in _FILES:
            content = load(file)
            self.assertEqual([error.message for error in validator.iter_errors(content)], [], file.name)
            content["services"][next(iter(content["services"]))]["comand"] = "typo"
            self.assertNotEqual(list(validator.iter_errors(content)), [])

    def test_their_images_are_those_of_the_repository(self):
        version = re.search(r"project\(sluice VERSION (\S+)", (_REPOSITORY / "CMakeLists.txt").read_text())[1]
        for file in _FILES:
            for name, service in load(file)["services"].items():
                with self.subTest(f"{file.name} {name}"):
                    self.assertIn(service["image"], (f"sluice:{version}", f"sluice-clients:{version}"))
                    context = (file.parent / service["build"]["context"]).resolve()
                    self.assertTrue((context / service["build"]["dockerfile"]).exists())
                    self.assertEqual(service["cap_drop"], ["ALL"])
                    self.assertTrue(service["read_only"])
                    for port in service.get("ports", []):
                        self.assertTrue(port.startswith("127.0.0.1:"), "no other machine may reach the try-out")

    def test_striped_files_are_read(self):
        report = json.loads(run(_REPOSITORY / "deploy/compose/compose.yaml", _PROGRAMS, "read"))
        self.assertEqual((report["errors"], report["blocks"]), (0, 100))

    def test_a_client_calls_through_the_proxy(self):
        built = subprocess.run([_REPOSITORY / "examples/build-clients", "go"], capture_output=True, check=False, text=True)
        if built.returncode == _SKIP:
            self.skipTest(built.stderr.strip())
        self.assertEqual(built.returncode, 0, built.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for program in (_PROGRAMS / "sluice-proxy", *(_REPOSITORY / "build/clients/go").iterdir()):
                shutil.copy(program, folder)
            report = json.loads(run(_REPOSITORY / "deploy/compose/compose.proxy.yaml", folder, "client"))
        self.assertEqual(report["errors"], 0)


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
