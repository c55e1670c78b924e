"""Renders the manifests of deploy/ as a cluster receives them, and looks up their parts. Plain dictionaries, as in
the YAML."""

import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile

import needs

yaml = needs.module("yaml", "python3-yaml")
_KUSTOMIZE = needs.kustomize()  # here, since unittest takes an exit in a test for an error

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
# Overlays that a user would write: an overlay of ours, and a component that none of ours has.
_COMBINED = {"production+cert-manager": ("production", "mtls/cert-manager"),
             "production+private-ca": ("production", "mtls/private-ca"), "proxy+mtls": ("proxy", "mtls/private-ca")}
WITH_MTLS = ("dev-mtls", "proxy-mtls", *_COMBINED)
OVERLAYS = ("dev", "production", "monitoring", "proxy", *WITH_MTLS)
WITH_CONFIGS = ("dev", "production", "proxy", *WITH_MTLS)  # overlays that start programs with a config
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")


@functools.cache
def _rendered(overlay):
    if overlay not in _COMBINED:
        return _build(REPOSITORY / "deploy/overlays" / overlay)
    base, component = _COMBINED[overlay]
    with tempfile.TemporaryDirectory(prefix="sluice-overlay-") as own:
        deploy = os.path.relpath(REPOSITORY / "deploy", os.path.realpath(own))
        (namespace,) = of_kind(render(base), "Namespace")
        (pathlib.Path(own) / "kustomization.yaml").write_text(json.dumps({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": namespace["metadata"]["name"],
            "resources": [f"{deploy}/overlays/{base}"], "components": [f"{deploy}/components/{component}"],
            "images": [{"name": "sluice-certificates", "newTag": "0.1.0"}]}))
        return _build(own)


def _build(folder):
    command = [*_KUSTOMIZE, str(folder)]
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
    spec = workload["spec"]
    return (spec["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else spec)["template"]


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


def secret_volumes(workload):
    """Returns {volume name: source} of each Secret."""
    volumes = pod(workload)["spec"].get("volumes", [])
    return {each["name"]: each["secret"] for each in volumes if "secret" in each}


def certificates(documents):
    """Returns {Secret: (uses, names)} of each certificate that a Job or cert-manager makes for a program."""
    uses = {"server": {"server auth"}, "client": {"client auth"}, "both": {"server auth", "client auth"}}
    found = {}
    for each in of_kind(documents, "Certificate"):
        if not each["spec"].get("isCA"):
            names = {*each["spec"].get("uris", []), *each["spec"].get("dnsNames", [])}
            found[each["spec"]["secretName"]] = set(each["spec"]["usages"]) & uses["both"], names
    for workload in of_kind(documents, "Job", "CronJob"):
        for argument in containers(workload)[0].get("args", []):
            if argument.startswith("--certificate="):
                secret, use, names = argument.partition("=")[2].split(":", 2)
                found[secret] = uses[use], set(names.split(","))
    return found


def tls_flags(container):
    """Returns {"certificate": "/etc/sluice-tls/tls.crt"} of --tls-certificate=/etc/sluice-tls/tls.crt, and so on."""
    words = container.get("command", []) + container.get("args", [])
    return dict(each.removeprefix("--tls-").split("=", 1) for each in words if each.startswith("--tls-"))
