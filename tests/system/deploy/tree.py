"""The aggregation tree of the overlay `dev` on a cluster: loads, and the cases of a test."""

import json
import sys
import time

import manifests
from cluster import Failed

PROGRAM = "/usr/bin/sluice-aggregator"  # also the demo file, taken from the image that clients run
CAT = ("/usr/bin/sluice-cat", "--aggregator=sluice:7100", "--output=/tmp/file")
READ_FILE = (*CAT, "--timeout=60s")
ADMIN_AGGREGATOR, ADMIN_WORKER, ADMIN_LINK, ADMIN_PROXY = 9100, 9101, 9102, 9103


def expect(truth, message):
    if not truth:
        raise Failed(message)


def read_block(file, *flags):
    return (*READ_FILE, *flags, "--block=0", file)


class Load:
    """Reads for a given time, and compares every byte."""

    def __init__(self, namespace, name, seconds, file="demo", flags=(), **pod):
        self._namespace = namespace
        self._name = name
        self._ends = None
        namespace.start_client(name, "/usr/bin/sluice-load", "--aggregator=sluice:7100", f"--file={file}", "--clients=2",
                               f"--duration={seconds}s", f"--compare={PROGRAM}", "--timeout=60s", *flags,
                               before=read_block(file, *flags), **pod)
        namespace.await_running(name)
        self._ends = time.monotonic() + seconds

    def finish(self):
        """Waits for the end of the load, and returns its report. Fails if a read went wrong, or if the load has
        ended too early."""
        left_s = self._ends - time.monotonic()
        expect(left_s > 0, f"the load ended {-left_s:.0f} s too early to tell")
        report = json.loads(self._namespace.client_output(self._name))
        expect(report["errors"] == 0, f"{report['errors']} of {report['blocks'] + report['errors']} blocks failed: "
               f"{report['error_sample']}")
        expect(report["bad_bytes"] == 0, f"{report['bad_bytes']} bytes are wrong")
        expect(report["blocks"] > 0, "nothing was read")
        return {"blocks": report["blocks"], "errors": 0, "goodput_mbps": round(report["goodput_bps"] / 1e6, 1),
                "block_p50_ms": round(report["block_p50_ms"], 1), "block_p99_ms": round(report["block_p99_ms"], 1),
                "block_max_ms": round(max(report["block_ms"]), 1)}


def starts(namespace):
    """Returns the start time of each aggregator, which changes of a config or of a set must not affect."""
    pods = namespace.pods(**{"app.kubernetes.io/name": "sluice-aggregator"})
    return {pod: namespace.metrics(pod, ADMIN_AGGREGATOR)["process_start_time_seconds"] for pod in pods}


def with_small_caches(documents):
    """Makes the caches of the mid-level aggregators smaller than the demo file. Otherwise repeated reads would not
    reach the workers."""
    for group in "ab":
        data = manifests.find(documents, "ConfigMap", f"sluice-mla-config-{group}")["data"]
        config = json.loads(data["aggregator.json"])
        config["mid_level"]["cache"] = "256kb"
        data["aggregator.json"] = json.dumps(config)
    return documents


def clean_up(namespace):
    """Removes the namespace and its data on the node."""
    data = manifests.pod(manifests.find(namespace.documents, "Job", "sluice-demo-data"))["spec"]["volumes"][0]
    namespace.kubectl("delete", "statefulset", "--all", check=False)
    try:
        namespace.run_client("clean-up", "/usr/bin/rm", "--recursive", "--force", "/data/mla-0000", "/data/mla-0001",
                             volumes=[data], mounts=[{"name": "data", "mountPath": "/data"}])
    except Failed as failed:
        print(f"{data['hostPath']['path']} is left on the node: {failed}", file=sys.stderr)
    namespace.remove()


def run(cases, namespace, options):
    """Runs the cases, of which the first one installs the tree. Returns their report."""
    report = {"namespace": namespace.name, "cases": {}}
    for case in cases:
        if case is not cases[0] and options.only and case.__name__ not in options.only:
            continue
        started = time.monotonic()
        print(f"{case.__name__} ...", file=sys.stderr, flush=True)
        try:
            outcome = {"ok": True, **(case(namespace, options) or {})}
        except Failed as failed:
            outcome = {"ok": False, "why": str(failed)}
        outcome["seconds"] = round(time.monotonic() - started, 1)
        print(f"{case.__name__}: {json.dumps(outcome)}", file=sys.stderr, flush=True)
        report["cases"][case.__name__] = outcome
        if case is cases[0] and not outcome["ok"]:
            break
    report["ok"] = all(outcome["ok"] for outcome in report["cases"].values())
    return report
