"""Renders the manifests of deploy/ as a cluster receives them, and looks up their parts. Plain dictionaries, as in
the YAML."""

import functools
import json
import pathlib
import re
import subprocess

import needs

yaml = needs.module("yaml", "python3-yaml")
_KUSTOMIZE = needs.kustomize()  # here, since unittest takes an exit in a test for an error

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
OVERLAYS = ("dev", "production", "monitoring", "proxy")
WITH_CONFIGS = ("dev", "production", "proxy")  # overlays that start programs with a config
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


@functools.cache
def _rendered(overlay):
    command = [*_KUSTOMIZE, str(REPOSITORY / "deploy/overlays" / overlay)]
    result = subprocess.run(command, capture_output=True, check=False, text=True)
    if result.returncode != 0 or result.stderr:  # a warning announces something that will stop working
        raise AssertionError(f"{' '.join(command)}: {result.stderr}")
    return result.stdout


def render(overlay):
    """Returns a fresh copy each time, because tests modify it."""
    return list(yaml.load_all(_rendered(overlay), yaml.CSafeLoader))


def installed(overlay):
    """Returns the objects in the cluster with this overlay. `monitoring` is applied in addition to an installation."""
    return render("production") + render("monitoring") if overlay == "monitoring" else render(overlay)


def examples():
    """Returns the objects that a user applies by hand in addition to an installation."""
    return [document for path in sorted((REPOSITORY / "deploy/examples").glob("*.yaml"))
            for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)]


def claims(documents):
    """Returns the names of all volume claims that StatefulSets create."""
    return {f"{claim['metadata']['name']}-{workload['metadata']['name']}-{ordinal}"
            for workload in of_kind(documents, "StatefulSet")
            for claim in workload["spec"].get("volumeClaimTemplates", [])
            for ordinal in range(workload["spec"]["replicas"])}


def name(document):
    return f"{document['kind']} {document['metadata']['name']}"


def of_kind(documents, *kinds):
    return [document for document in documents if document["kind"] in kinds]


def find(documents, kind, wanted):
    found = [each for each in of_kind(documents, kind) if each["metadata"]["name"] == wanted]
    return found[0] if found else None


def workloads(documents):
    return of_kind(documents, *_WORKLOADS)


def pod(workload):
    return workload["spec"]["template"]


def init_containers(workload):
    return pod(workload)["spec"].get("initContainers", [])


def containers(workload):
    return pod(workload)["spec"]["containers"]


def servers(workload):
    """Returns the containers that run as long as the pod. Sidecars are init containers that do not end."""
    sidecars = [each for each in init_containers(workload) if each.get("restartPolicy") == "Always"]
    return containers(workload) + sidecars


def is_proxy(container):
    return container.get("command", [""])[0] == "/usr/bin/sluice-proxy"


def port_names(workload):
    return {port["name"]: port["containerPort"] for each in servers(workload) for port in each.get("ports", [])}


def selects(selector, labels):
    """Evaluates a label selector of Kubernetes. An empty selector selects everything."""
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "In":
            raise AssertionError(f"teach this test the operator {expression['operator']}")
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def selected(documents, selector):
    return [each for each in workloads(documents) if selects(selector, pod(each)["metadata"].get("labels", {}))]


def config_volumes(workload):
    """Returns (volume name, ConfigMap name) of each config."""
    volumes = pod(workload)["spec"].get("volumes", [])
    return [(each["name"], each["configMap"]["name"]) for each in volumes if "configMap" in each]


def _worker_lists(documents, workload):
    for _, config in config_volumes(workload):
        for file, text in find(documents, "ConfigMap", config)["data"].items():
            if file.endswith(".json"):
                yield json.loads(text).get("workers", [])
    for container in containers(workload):
        for argument in container.get("args", []):
            if re.match(r"--workers=.*:", argument):  # sluice-stripe's --workers is a number
                yield argument.partition("=")[2].split(",")


def asked(documents):
    """Yields (workload, pods, Service, port) of each address that a workload calls, from its config or its command
    line. The pods are names of a StatefulSet's pods, {"worker-0", "worker-1"}, or empty if the workload calls the
    Service itself."""
    for workload in workloads(documents):
        if pod(workload)["metadata"]["labels"].get("sluice/proxy") == "node":
            continue  # this workload only names its workers to the proxy, which calls them
        for address in (each for workers in _worker_lists(documents, workload) for each in workers):
            host, _, port = address.rpartition(":")
            pods, _, service = host.rpartition(".")
            yield workload, _range(pods), service, int(port)


def _range(pattern):
    """Expands a range. An open range is one name that no pod has."""
    found = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", pattern)
    if not found:
        return {pattern} if pattern else set()
    return {f"{found[1]}{number}{found[4]}" for number in range(int(found[2]), int(found[3]) + 1)}


def host_paths(workload):
    return [each["hostPath"]["path"] for each in pod(workload)["spec"].get("volumes", []) if "hostPath" in each]
