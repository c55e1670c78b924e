#!/usr/bin/env python3
"""Prints docs/reference/config.md, from the programs in BIN: docs/reference/make_config.py BIN > docs/reference/config.md"""

import pathlib
import subprocess
import sys

PROGRAMS = ("sluice-aggregator", "sluice-proxy", "sluice-worker", "sluice-link")

_HEADER = """# Config reference

<!-- docs/reference/make_config.py BIN makes this page from proto/sluice/v1/config.proto. Edit that file. -->

A program reads its config from the file of `--config`, in protobuf's JSON, and from flags, which override the file. A dot in a
field is an object in JSON: `link.capacity` is `{"link": {"capacity": "1gbit"}}`. Sizes, rates and times are strings with a unit:
`"32kb"` (1024 bytes to a kb), `"100mbit"`, `"1gbit"`, `"100us"`, `"10s"`. `--check_config` checks flags and file and starts nothing.
"""


def page(binaries):
    parts = [_HEADER]
    for program in PROGRAMS:
        command = [str(pathlib.Path(binaries) / program), "--config_reference"]
        parts.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    return "\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(page(sys.argv[1]))
