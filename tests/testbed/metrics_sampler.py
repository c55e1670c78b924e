"""Reads a few metrics of several programs repeatedly, and prints a line of JSON for each round: [monotonic seconds,
[[value, ...], ...]], with null for a program that does not respond. Sums the values of a metric over its labels.

Runs inside the namespace of the programs: metrics_sampler.py PERIOD_S NAME,NAME... PORT...
"""

import http.client
import json
import sys
import time

_TIMEOUT_S = 0.06  # a stopped program must not delay the samples of the others


def _sample(port, names):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    except OSError:
        return None
    finally:
        connection.close()
    sums = dict.fromkeys(names, 0.0)
    for line in lines:
        name = line.split("{")[0].split(" ")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    return [sums[name] for name in names]


def _main():
    period_s, names, ports = float(sys.argv[1]), sys.argv[2].split(","), [int(port) for port in sys.argv[3:]]
    due_s = time.monotonic()
    while True:
        print(json.dumps([time.monotonic(), [_sample(port, names) for port in ports]]), flush=True)
        due_s = max(due_s + period_s, time.monotonic())
        time.sleep(due_s - time.monotonic() if due_s > time.monotonic() else 0)


if __name__ == "__main__":
    _main()
