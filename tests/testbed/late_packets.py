"""Takes the IPv4 packets that arrive on one device, and sends each through another device a moment later.

    late_packets.py READY_FILE FROM_DEVICE TO_DEVICE DELAY_S        until it is killed
"""

import collections
import pathlib
import select
import socket
import sys
import time

_IPV4 = 0x0800
_FRAME_BYTES = 2048


def _forward(ready_file, from_device, to_device, delay_s):
    incoming = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))
    incoming.bind((from_device, _IPV4))
    outgoing = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # receives nothing
    outgoing.bind((to_device, 0))
    pathlib.Path(ready_file).touch()
    held = collections.deque()  # pairs (due, frame), in the order in which they are due
    while True:
        wait_s = max(0, held[0][0] - time.monotonic()) if held else None
        if select.select([incoming], [], [], wait_s)[0]:
            frame, (_, _, kind, *_) = incoming.recvfrom(_FRAME_BYTES)
            if kind != socket.PACKET_OUTGOING:
                held.append((time.monotonic() + delay_s, frame))
        while held and held[0][0] <= time.monotonic():
            outgoing.send(held.popleft()[1])


if __name__ == "__main__":
    _forward(*sys.argv[1:4], float(sys.argv[4]))
