#!/usr/bin/env python3
"""Tests the README's claims: readme_test.py FOLDER_OF_PROGRAMS. Its code must be the example that is built, its
commands must run, and its files must exist."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_REPOSITORY / "tests/testbed"))
sys.dont_write_bytecode = True

from sluice_programs import READ_PROGRAMS  # noqa: E402

_README = (_REPOSITORY / "README.md").read_text()
_PROGRAMS = pathlib.Path()


def block(language):
    return re.search(rf"```{language}\n(.*?)```", _README, re.S).group(1)


def linked_files(document):
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)  # brackets in code are not links
    links = re.findall(r"\]\(([^)#]+)", prose)
    return [document.parent / link for link in links if "://" not in link]


class ReadmeTest(unittest.TestCase):
    def test_its_code_is_the_example_that_is_built(self):
        example = (_REPOSITORY / "examples/fan_out.cc").read_text()
        self.assertIn("// [snippet]\n" + block("cpp") + "// [snippet]\n", example)

    def test_its_two_commands_can_be_run(self):
        commands = re.findall(r"^    (\./\S+)", _README, re.M)
        self.assertEqual(commands, ["./examples/run-demo.sh", "./tests/run-tests.sh"])
        for command in commands:
            self.assertTrue(os.access(_REPOSITORY / command, os.X_OK), command)

    def test_the_demo_builds_what_it_runs(self):
        """The tests run with everything built, so a missing target would not show."""
        script = (_REPOSITORY / "examples/run-demo.sh").read_text()
        targets = re.search(r"--target \\\n(.*)$", script, re.M)[1].split()
        self.assertEqual(sorted(targets), sorted([*READ_PROGRAMS, "sluice-diagnose"]))

    def test_the_help_of_the_demos_comes_without_a_build(self):
        for demo in ("run-demo.sh", "run-proxy-demo.sh"):
            result = subprocess.run([_REPOSITORY / "examples" / demo, "--help"], capture_output=True, text=True, check=True)
            self.assertTrue(result.stdout.startswith("usage: "), result.stdout)

    def test_the_demo_takes_installed_programs_of_its_version_and_builds_otherwise(self):
        version = re.search(r"^project\(sluice VERSION (\S+)", (_REPOSITORY / "CMakeLists.txt").read_text(), re.M)[1]
        installed = ["install-packages.sh demo", "run --build {prefix} --cc reno"]
        built = ["install-packages.sh build demo", "cmake --preset release", "cmake --build", "run --build build/release --cc reno"]
        for banner, expected in (
            (f"sluice-aggregator {version} (0123456, gRPC 1.51.1)", installed),
            (f"sluice-aggregator {version}1", built),
            ("sluice-aggregator 0.0.9", built),
            (None, built),
        ):
            with self.subTest(banner), tempfile.TemporaryDirectory() as folder:
                calls = run_demo(pathlib.Path(folder), banner)
                expected = [call.format(prefix=f"{folder}/usr") for call in expected]
                self.assertEqual([call[: len(start)] for call, start in zip(calls, expected)], expected)
                self.assertEqual(len(calls), len(expected), calls)

    def test_files_that_the_documents_link_exist(self):
        documents = [_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").rglob("*.md")),
                     *sorted((_REPOSITORY / "research").glob("*.md"))]
        for document in [*documents, *sorted((_REPOSITORY / "examples").glob("*/README.md"))]:
            for target in linked_files(document):
                self.assertTrue(target.exists(), f"{document.name} links {target}")

    def test_the_configs_in_deploy_are_good(self):
        here = {"worker": ["--data", _REPOSITORY]}  # a folder that exists on this machine
        for program in ("aggregator", "worker", "link", "proxy"):
            argv = [_PROGRAMS / f"sluice-{program}", "--config", _REPOSITORY / f"deploy/{program}.json", "--check-config"]
            argv += here.get(program, [])
            self.assertEqual(subprocess.run(argv, capture_output=True, check=True).stdout, b"config ok\n")

    def test_its_programs_and_the_example_of_a_reader_read_a_file_back(self):
        with tempfile.TemporaryDirectory() as folder:
            content = os.urandom(100_000)
            (pathlib.Path(folder) / "FILE").write_bytes(content)
            ports = [str(port) for port in free_ports(5)]
            script = block("sh")
            for port, free in zip(("7001", "7002", "7003", "7004", "7100"), ports):
                script = script.replace(f":{port}", f":{free}")
            serve, cat = script.rsplit("\n", 2)[0], script.splitlines()[-1]
            with background(serve + "\nwait", folder):
                self.assertEqual(until_it_works(cat, folder), content)
                workers = " ".join(f"127.0.0.1:{port}" for port in ports[:4])
                self.assertEqual(until_it_works(f"read_block FILE {workers}", folder), content[: 4 * 10240])


def run_demo(folder, banner):
    """Runs examples/run-demo.sh in a clone of scripts that only record their calls, on a machine whose installed
    sluice-aggregator prints `banner`, or which has none. Returns the calls."""
    calls = folder / "calls"

    def script(path, command):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    for name in ("clone/tests/install-packages.sh", "clone/examples/demo/run", "bin/cmake"):
        script(folder / name, f'echo "${{0##*/}} $*" >> {calls}')
    if banner is not None:
        script(folder / "usr/bin/sluice-aggregator", f"echo '{banner}'")
    shutil.copy(_REPOSITORY / "CMakeLists.txt", folder / "clone")
    demo = shutil.copy(_REPOSITORY / "examples/run-demo.sh", folder / "clone/examples")
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLUICE_PREFIX": str(folder / "usr")}
    subprocess.run([demo, "--cc", "reno"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return calls.read_text().splitlines()


def free_ports(count):
    """Returns ports below the kernel's ephemeral range. Otherwise another test could take one before its program
    listens."""
    ports = []
    for port in random.sample(range(10_000, 32_000), 1_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError("no free port below 32000")


def shell(command, folder, **options):
    environment = {**os.environ, "PATH": f"{_PROGRAMS}:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", "-ec", command], cwd=folder, env=environment, **options)


class background:
    """The servers of a shell snippet, in their own process group, which ends with the block."""

    def __init__(self, command, folder):
        self._process = shell(command, folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)


def until_it_works(command, folder, deadline_s=60):
    """Returns the output of a command, which may fail until the servers have started."""
    deadline = time.monotonic() + deadline_s
    while True:
        process = shell(command, folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=deadline_s)
        if process.returncode == 0:
            return output
        if time.monotonic() > deadline:
            raise AssertionError(f"{command}: {errors.decode()}")


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
