"""Reads a few metrics of several aggregators again and again, and prints a line of JSON for each round:
[monotonic seconds, [[goodput bytes, budget bytes, leased], ...]], null where an aggregator does not answer.

Runs inside the aggregators' namespace: share_sampler.py PERIOD_S PORT...
"""

import http.client
import json
import sys
import time

_TIMEOUT_S = 0.06  # one that is stopped must not hold up the others
_NAMES = ("sluice_goodput_bytes_total", "sluice_budget_bytes", "sluice_budget_leased")


def _sample(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    except OSError:
        return None
    finally:
        connection.close()
    sums = dict.fromkeys(_NAMES, 0.0)
    for line in lines:
        name = line.split("{")[0].split(" ")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    return [sums[name] for name in _NAMES]


def _main():
    period_s, ports = float(sys.argv[1]), [int(port) for port in sys.argv[2:]]
    due_s = time.monotonic()
    while True:
        print(json.dumps([time.monotonic(), [_sample(port) for port in ports]]), flush=True)
        due_s = max(due_s + period_s, time.monotonic())
        time.sleep(due_s - time.monotonic() if due_s > time.monotonic() else 0)


if __name__ == "__main__":
    _main()
