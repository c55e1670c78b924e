"""Checks the machine's requirements for the tests of this folder. Exits with code 77 and a reason if one is missing."""

import json
import shutil
import subprocess
import sys

_SKIP = 77
_KUSTOMIZE = (4, 5)  # the version in kubectl 1.24; in earlier versions `labels` lacks fields


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(_SKIP)


def module(name, package):
    try:
        return __import__(name)
    except ImportError:
        return skip(f"{sys.executable} has no module {name}; it is in Debian's package {package}")


def _kubectl_kustomize_version():
    try:
        told = subprocess.run(["kubectl", "version", "--client", "--output=json"], capture_output=True, check=True)
        version = json.loads(told.stdout).get("kustomizeVersion", "v0.0")
        return tuple(int(part) for part in version.lstrip("v").split(".")[:2])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return (0, 0)


def kustomize():
    """Returns the command that renders a folder."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if _kubectl_kustomize_version() >= _KUSTOMIZE:
        return ["kubectl", "kustomize"]
    return skip("neither kustomize nor a kubectl of 1.24 or newer is on PATH (Debian 12's is too old for our overlays); "
                "tests/install-languages installs kustomize")


def module_of_go(module):
    """Returns the folder of a Go module, which a machine without a network has only if it was fetched before."""
    if shutil.which("go") is None:
        skip("there is no go; tests/install-languages installs it")
    fetched = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, check=False, text=True)
    if fetched.returncode != 0:
        skip(f"go cannot have {module}, which needs a network once")
    return json.loads(fetched.stdout)["Dir"]


def helm():
    if shutil.which("helm") is None:
        skip("helm is not on PATH; tests/install-languages installs it")
