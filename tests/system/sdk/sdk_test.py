#!/usr/bin/env python3
"""Runs the tests of a package of sdk/ with a proxy: sdk_test.py LANGUAGE BUILD. The tests serve their workers in the
network of tests/system/docs/with_proxy. Exits with code 77 and prints the reason if the machine lacks a requirement."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_REPOSITORY / "tests/system/docs"))

import proxy_clients  # noqa: E402
from proxy_clients import Missing  # noqa: E402

_SDK = _REPOSITORY / "sdk"
_SKIP = 77
_PATIENCE = 250  # seconds for the tests
_ENVIRONMENT = {
    "SLUICE_TEST_PROXY": "unix:/run/sluice/proxy.sock",
    "SLUICE_TEST_HTTP_PROXY": "http://127.0.0.1:7400",
    "SLUICE_TEST_ADMIN": "127.0.0.1:9103",
    "SLUICE_TEST_WORKERS": "10.0.0.1:0,10.0.0.2:0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_PROXY_VARIABLE = re.compile("(no_)?(grpc_)?(https?_)?proxy", re.I)


def _python(_folder):
    package = _SDK / "python"
    paths = f"PYTHONPATH={package}/src"
    return ["env", paths, proxy_clients.python_with_grpc(), "-m", "unittest", "discover", "--start-directory", package / "tests"]


def _go(folder):
    proxy_clients.fetch("go", "mod", "download", cwd=_SDK / "go")
    proxy_clients.build("go", "vet", ".", cwd=_SDK / "go")
    proxy_clients.build("go", "test", "-c", "-o", str(folder / "tests"), ".", cwd=_SDK / "go")
    return [folder / "tests", "-test.v"]


def _node(folder):
    for file in (_SDK / "node").glob("*.js*"):
        shutil.copy(file, folder)
    if not (folder / "node_modules/@grpc/grpc-js").exists():
        proxy_clients.fetch("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)
    return ["node", "--test", folder / "fan_out.test.js"]


def _java(folder):
    maven = ["--batch-mode", "--no-transfer-progress", f"-Dsluice.build={folder}", f"--file={_SDK}/java/pom.xml"]
    libraries = [*maven, "dependency:go-offline", "surefire:test", "-DskipTests"]
    try:
        proxy_clients.fetch("mvn", "--offline", *libraries)
    except Missing:
        proxy_clients.fetch("mvn", *libraries)
    return ["mvn", "--offline", *maven, "test"]


def _rust(folder):
    shutil.copytree(_SDK / "rust", folder / "source", dirs_exist_ok=True)
    flags = [f"--manifest-path={folder}/source/Cargo.toml", f"--target-dir={proxy_clients.cargo_target(folder)}"]
    proxy_clients.fetch("cargo", "fetch", flags[0])
    proxy_clients.build("cargo", "test", "--no-run", "--jobs=2", *flags)
    # One test at a time, because they read metrics of the proxy.
    return ["cargo", "test", "--offline", "--quiet", *flags, "--", "--test-threads=1"]


_TESTS = {"python": _python, "go": _go, "node": _node, "java": _java, "rust": _rust}


def main(language, build):
    folder = pathlib.Path(build).resolve() / "sdk" / language
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not _PROXY_VARIABLE.fullmatch(name)}
    try:
        tests = _TESTS[language](folder)
    except Missing as missing:
        print(f"SKIPPED: {missing}")
        return _SKIP
    command = [sys.executable, _REPOSITORY / "tests/system/docs/with_proxy", folder.parents[1] / "bin", *tests]
    return subprocess.run(command, env={**own, **_ENVIRONMENT}, timeout=_PATIENCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
