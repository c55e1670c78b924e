"""Compares the aggregator's inferences of losses with the counts of the servers' kernels, response by response."""

import json
import re
import subprocess

from answer_measurement import Servers, built, server_command
from counters import tcp_counters
from scenario import MTU_BYTES
from topology import AGGREGATOR, Network


class InferenceMeasurement:
    """Runs scenarios with servers without Sluice."""

    def __init__(self, build, folder, server):
        self._folder = folder
        self._load = built(build, "tests/inference_load")
        self._server = server_command(build, server)

    def run(self, scenario, progress):
        """Returns one object, ready for JSON. A response counts as lost if its server retransmitted a packet that
        the receiver did not have yet."""
        progress.step(scenario.title)
        log = self._folder / "inference.log"
        with Network(scenario.link) as network, Servers(self._server, network, self._folder) as servers, open(
            log, "w"
        ) as errors:
            argv = network.command(AGGREGATOR, [str(word) for word in self._argv(scenario, network)])
            load = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                answers = _compare(load, scenario.blocks, network, servers)
                load.stdin.close()
                if load.wait(60) != 0 or answers["blocks"] != scenario.blocks:
                    raise RuntimeError(f"the load ended with {load.returncode}: {log.read_text().strip()}")
            finally:
                load.kill()
                load.wait()
        result = {"policy": scenario.policy, **scenario.link.facts(), **scenario.think.facts(), **answers}
        progress.step("  " + ", ".join(f"{name} {value}" for name, value in answers.items()))
        return result

    def _argv(self, scenario, network):
        link = scenario.link
        return [
            self._load, "--workers", ",".join(network.worker_addresses()), "--policy", scenario.policy,
            "--capacity", f"{link.rate_bps}bit", "--buffer", link.told_buffer() or link.buffer_bytes,
            "--rtt", f"{link.rtt_us}us", "--mtu", MTU_BYTES, "--connections", "persistent",
            "--response-bytes", scenario.response_bytes, "--blocks", scenario.blocks,
            "--think", f"{scenario.think.usual_ms}ms", "--tail-time", f"{scenario.think.tail_ms}ms",
            "--tail-share", scenario.think.tail_share,
        ]  # fmt: skip


def _compare(load, blocks, network, servers):
    counts = dict.fromkeys(("answers", "lost", "inferred", "found", "false", "rto_waits"), 0)
    truth_before, inferred_before = _repaired_packets(network), {}
    timeouts_before = _timeouts(servers)
    done = 0
    for _ in range(blocks):
        line = load.stdout.readline()
        if not line:
            break
        inferred = json.loads(line)
        truth = _repaired_packets(network)
        for worker, seen in inferred.items():
            was_lost = truth.get(worker, 0) > truth_before.get(worker, 0)
            is_inferred = seen["losses"] > inferred_before.get(worker, {"losses": 0})["losses"]
            counts["answers"] += 1
            counts["lost"] += was_lost
            counts["inferred"] += is_inferred
            counts["found"] += was_lost and is_inferred
            counts["false"] += is_inferred and not was_lost
        truth_before, inferred_before = truth, inferred
        done += 1
        load.stdin.write("\n")
        load.stdin.flush()
    counts["rto_waits"] = int(sum(seen["rtos"] for seen in inferred_before.values()))
    return {**counts, "tcp_timeouts": _timeouts(servers) - timeouts_before, "blocks": done}


def _timeouts(servers):
    return sum(tcp_counters(server.pid)["timeouts"] for server in servers.workers)


def _repaired_packets(network):
    """Returns, by server address, the retransmitted packets that the receiver did not have yet."""
    packets = {}
    for machine in network.machines:
        # Each connection has two lines: the addresses, then "... retrans:0/3 dsack_dups:1 ...".
        lines = iter(_ss(network, machine).splitlines())
        for addresses, info in zip(lines, lines):
            local = addresses.split()[2].replace("[::ffff:", "").replace("]", "")
            again = re.search(r"\bretrans:\d+/(\d+)", info)
            needless = re.search(r"\bdsack_dups:(\d+)", info)
            repaired = int(again.group(1)) - int(needless.group(1) if needless else 0) if again else 0
            packets[local] = packets.get(local, 0) + repaired
    return packets


def _ss(network, machine):
    argv = network.command(machine, ["ss", "-tinH", "state", "established"])
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
