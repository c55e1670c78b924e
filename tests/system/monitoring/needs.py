"""Checks the machine's requirements for the tests of this folder. Exits with code 77 and a reason if one is missing."""

import shutil
import sys

_SKIP = 77


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(_SKIP)


def program(name):
    if shutil.which(name) is None:
        skip(f"{name} is not installed; it is in Debian's package prometheus")


try:
    import yaml  # noqa: F401
except ImportError:
    skip(f"{sys.executable} has no module yaml; it is in Debian's package python3-yaml")
