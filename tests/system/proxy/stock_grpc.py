"""Provides `from stock_grpc import grpc`: Debian's grpcio, even if a different Python comes first on the path."""

import os
import sys

_DEBIAN = "/usr/bin/python3"

try:
    import grpc
except ImportError:
    if os.path.realpath(sys.executable) == os.path.realpath(_DEBIAN) or not os.path.exists(_DEBIAN):
        print("Python has no grpcio: tests/install-packages.sh network")
        sys.exit(77)
    os.execv(_DEBIAN, [_DEBIAN, *sys.argv])
