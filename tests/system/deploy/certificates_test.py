#!/usr/bin/env python3
"""Tests deploy/image/certificates, the program of components/mtls/private-ca: its own tests, and its command lines in the
manifests."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402
import needs  # noqa: E402

_SOURCE = manifests.REPOSITORY / "deploy/image/certificates"
_ENVIRONMENT = {**os.environ, "CGO_ENABLED": "0", "GOPROXY": "off"}  # it needs the standard library alone
_REFUSED_FLAGS = 2

if shutil.which("go") is None:
    needs.skip("there is no go; tests/install-languages installs it")


def go(*arguments):
    return subprocess.run(["go", *arguments], cwd=_SOURCE, env=_ENVIRONMENT, capture_output=True, check=False, text=True)


class CertificatesTest(unittest.TestCase):
    def test_its_own_tests_pass(self):
        for command in ("vet", "test"):
            result = go(command, "./...")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_it_takes_the_command_lines_of_its_jobs(self):
        with tempfile.TemporaryDirectory(prefix="sluice-certificates-") as own:
            built = go("build", "-o", f"{own}/sluice-certificates", ".")
            self.assertEqual(built.returncode, 0, built.stderr)
            account = pathlib.Path(own)
            for name in ("token", "namespace"):
                (account / name).write_text("x")
            key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{own}/key")
            out = ("-out", f"{own}/ca.crt")
            subprocess.run(["openssl", "req", "-x509", *key, "-subj", "/CN=api", *out], check=True, capture_output=True)
            documents = manifests.installed("dev-mtls")
            for kind in ("Job", "CronJob"):
                container = manifests.containers(manifests.find(documents, kind, "sluice-certificates"))[0]
                self.assertEqual(container["command"], ["/usr/bin/sluice-certificates"])
                # No API server is at this address: the flags are good, and the call fails.
                flags = (*container["args"], "--server=https://127.0.0.1:1", f"--account={own}")
                result = subprocess.run([f"{own}/sluice-certificates", *flags], capture_output=True, check=False, text=True)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("connection refused", result.stderr)
                command = [f"{own}/sluice-certificates", *flags, "--certificate=a:b"]
                refused = subprocess.run(command, capture_output=True, check=False)
                self.assertEqual(refused.returncode, _REFUSED_FLAGS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
