"""A namespace of a real cluster, from kubectl's current context: its objects, its pods and their metrics."""

import contextlib
import copy
import json
import re
import subprocess
import time
import urllib.request

import manifests

# A client's pod, written as a user of the namespace must write it. Kubernetes restarts a failed command, because
# network policies let a new pod out only after some seconds.
_CLIENT_POD = {
    "restartPolicy": "OnFailure", "automountServiceAccountToken": False, "enableServiceLinks": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"}},
}
_RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


class Failed(Exception):
    """A case failed; the message gives the reason."""


def wait_until(condition, what, patience_s=180):
    """Waits for the condition, and returns the time that it took in seconds."""
    started = time.monotonic()
    while True:
        outcome = condition()
        if outcome:
            return time.monotonic() - started
        if time.monotonic() - started > patience_s:
            raise Failed(f"waited {patience_s} s for {what}")
        time.sleep(0.25)


class Namespace:
    """All objects of one overlay, with a name and host paths of its own, so that several can coexist. `image` replaces
    the image `sluice`; without one, all containers keep their own."""

    def __init__(self, name, image, documents):
        self.name = name
        self.image = image
        self.documents = [self._own(document) for document in documents]

    def _own(self, document):
        document = copy.deepcopy(document)
        if document["kind"] == "Namespace":
            document["metadata"]["name"] = self.name
            return document
        document["metadata"]["namespace"] = self.name
        for subject in document.get("subjects", []):
            subject["namespace"] = self.name
        if document in manifests.workloads([document]):
            for container in manifests.init_containers(document) + manifests.containers(document):
                if self.image and re.fullmatch(r"sluice(:.*)?", container["image"]):
                    container["image"] = self.image
            for volume in manifests.pod(document)["spec"].get("volumes", []):
                if "hostPath" in volume:
                    volume["hostPath"]["path"] = self.host_path(volume["hostPath"]["path"])
        return document

    def host_path(self, path):
        return re.sub(r"^(/var/lib|/run)/[^/]+", rf"\1/{self.name}", path)

    def kubectl(self, *arguments, check=True, text=None, timeout_s=600):
        result = subprocess.run(["kubectl", "--namespace", self.name, *arguments], capture_output=True, check=False,
                                input=text, text=True, timeout=timeout_s)
        if check and result.returncode != 0:
            raise Failed(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def apply(self, *documents):
        self.kubectl("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def install(self):
        namespaces = manifests.of_kind(self.documents, "Namespace")
        self.apply(*namespaces)
        self.apply(*(each for each in self.documents if each not in namespaces))

    def await_rollout(self, *workloads, patience_s=420):
        """Waits for workloads such as 'deployment/sluice-hla'; by default for all workloads."""
        for workload in workloads or [f"{each['kind']}/{each['metadata']['name']}".lower()
                                      for each in manifests.of_kind(self.documents, "Deployment", "StatefulSet", "DaemonSet")]:
            self.kubectl("rollout", "status", workload, f"--timeout={patience_s}s")

    def await_job(self, name, patience_s=300):
        self.kubectl("wait", "--for=condition=complete", f"job/{name}", f"--timeout={patience_s}s")

    def pods(self, **labels):
        """Returns the names of the pods that are not being deleted."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self.get("pods", f"--selector={selector}")["items"]
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def start_client(self, name, *command, mounts=(), volumes=(), before=None, **spec):
        """Starts a pod with a /tmp that may call the aggregators. It runs one command, after `before` has succeeded."""
        container = {"name": "client", "image": self.image, "command": list(command), "securityContext": _RESTRICTED,
                     "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                     "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts]}
        if before:
            spec["initContainers"] = [{**container, "name": "before", "command": list(before)}]
        self.apply({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "labels": {"sluice/client": "true"}},
                    "spec": {**_CLIENT_POD, **spec, "containers": [container],
                             "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes]}})

    def phase(self, pod):
        return self.get(f"pod/{pod}")["status"]["phase"]

    def await_running(self, pod):
        wait_until(lambda: self.phase(pod) != "Pending", f"pod {pod} to start")

    def client_output(self, name, patience_s=600):
        """Returns the output of a client's command once it has succeeded."""
        try:
            wait_until(lambda: self.phase(name) == "Succeeded", f"pod {name} to succeed", patience_s)
            return self.kubectl("logs", name, "--container=client")
        except Failed as failed:
            last = self.kubectl("logs", name, "--container=client", "--tail=3", check=False)
            raise Failed(f"{failed}: {last[-500:]}") from None
        finally:
            self.kubectl("delete", "pod", name, "--wait=false")

    def run_client(self, name, *command, patience_s=180, **spec):
        self.start_client(name, *command, **spec)
        return self.client_output(name, patience_s)

    @contextlib.contextmanager
    def forwarded(self, pod, port):
        """Yields a port of this host that leads to the pod. NetworkPolicies cannot block a port-forward."""
        forward = subprocess.Popen(["kubectl", "--namespace", self.name, "port-forward", f"pod/{pod}", f":{port}"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            first = forward.stdout.readline()
            local = re.search(r"127\.0\.0\.1:(\d+)", first)
            if local is None:
                raise Failed(f"kubectl port-forward to {pod} says {first!r}")
            yield int(local[1])
        finally:
            forward.terminate()
            forward.wait()

    def metrics(self, pod, port):
        """Returns {name: sum over its labels} from the pod's admin server."""
        with self.forwarded(pod, port) as local, \
                urllib.request.urlopen(f"http://127.0.0.1:{local}/metrics", timeout=20) as answer:
            return parse_metrics(answer.read().decode())

    def remove(self):
        self.kubectl("delete", "namespace", self.name, "--ignore-not-found", timeout_s=300)


def parse_metrics(text):
    sums = {}
    for line in text.splitlines():
        sample = re.match(r"(\w+)(?:\{.*\})? (\S+)$", line)
        if sample:
            sums[sample[1]] = sums.get(sample[1], 0.0) + float(sample[2])
    return sums
