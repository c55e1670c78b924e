#!/usr/bin/env python3
"""Checks that every overlay follows every policy, and that every policy finds its violations."""

import sys
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402
import policies  # noqa: E402
from manifests import containers, find, pod  # noqa: E402


def hla(documents):
    return find(documents, "Deployment", "sluice-hla")


def worker(documents):
    return find(documents, "StatefulSet", "sluice-worker-a")


def budget(documents, workload):
    return find(documents, "PodDisruptionBudget", workload)["spec"]


def network(documents, policy):
    return find(documents, "NetworkPolicy", policy)


def security(documents):
    return containers(hla(documents))[0]["securityContext"]


# Violations by the name of the policy.
BREACHES = {
    "containers_are_restricted": [
        lambda documents: security(documents).update(readOnlyRootFilesystem=False),
        lambda documents: security(documents).update(allowPrivilegeEscalation=True),
        lambda documents: security(documents).update(runAsNonRoot=False),
        lambda documents: security(documents).update(runAsUser=0),
        lambda documents: security(documents)["capabilities"].update(add=["NET_RAW"]),
        lambda documents: security(documents).update(privileged=True),
        lambda documents: pod(hla(documents))["spec"]["securityContext"].pop("seccompProfile"),
        lambda documents: containers(hla(documents))[0].update(name="own-host-path", securityContext={
            **security(documents), "runAsUser": 0, "runAsNonRoot": False}),  # only an init container may use it
    ],
    "pods_are_by_themselves": [
        lambda documents: pod(hla(documents))["spec"].update(hostNetwork=True),
        lambda documents: pod(hla(documents))["spec"].pop("automountServiceAccountToken"),
    ],
    "host_paths_fit_the_namespace": [
        lambda documents: manifests.of_kind(documents, "Namespace")[0]["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/enforce": "restricted"}),
        lambda documents: manifests.of_kind(documents, "Namespace")[0]["metadata"].pop("labels"),
    ],
    "resources_are_given": [
        lambda documents: containers(worker(documents))[0]["resources"].pop("limits"),
        lambda documents: containers(worker(documents))[0]["resources"]["requests"].pop("cpu"),
    ],
    "servers_are_probed": [
        lambda documents: containers(worker(documents))[0].pop("livenessProbe"),
        lambda documents: containers(worker(documents))[0]["readinessProbe"]["httpGet"].update(port=7001),
    ],
    "images_are_pinned": [
        lambda documents: containers(worker(documents))[0].update(image="registry:5000/sluice"),
        lambda documents: containers(worker(documents))[0].update(image="sluice:latest"),
    ],
    "selectors_select": [
        lambda documents: pod(hla(documents))["metadata"]["labels"].update({"app.kubernetes.io/component": "other"}),
        lambda documents: hla(documents)["spec"].update(
            selector={"matchLabels": {"app.kubernetes.io/name": "sluice-aggregator"}}),
        lambda documents: find(documents, "PodDisruptionBudget", "sluice-worker-a")["spec"]["selector"].update(
            matchLabels={"app.kubernetes.io/component": "worker"}),  # both sets in one budget
        lambda documents: pod(hla(documents))["spec"]["topologySpreadConstraints"][0]["labelSelector"].update(
            matchLabels={"app.kubernetes.io/component": "mid-level"}),
    ],
    "servers_survive_a_drain_of_a_node": [
        lambda documents: documents.remove(find(documents, "PodDisruptionBudget", "sluice-hla")),
        lambda documents: budget(documents, "sluice-hla").update(minAvailable=2),
        lambda documents: budget(documents, "sluice-hla").update(minAvailable=0),
        lambda documents: budget(documents, "sluice-worker-a").update(maxUnavailable=0),
        lambda documents: budget(documents, "sluice-worker-a").update(maxUnavailable=32),
        lambda documents: budget(documents, "sluice-worker-a").pop("unhealthyPodEvictionPolicy"),
    ],
    "services_lead_somewhere": [
        lambda documents: find(documents, "Service", "sluice")["spec"].update(selector={"app": "other"}),
        lambda documents: find(documents, "Service", "sluice")["spec"]["ports"][0].update(targetPort="http"),
        lambda documents: find(documents, "Service", "sluice-worker-a")["spec"].pop("clusterIP"),
        lambda documents: worker(documents)["spec"].update(serviceName="sluice-worker"),
    ],
    "workers_keep_their_names": [
        lambda documents: worker(documents)["spec"].pop("podManagementPolicy"),
        lambda documents: find(documents, "Service", "sluice-worker-a")["spec"].pop("publishNotReadyAddresses"),
    ],
    "replicas_spread_over_nodes_that_take_them": [
        lambda documents: pod(hla(documents))["spec"]["topologySpreadConstraints"][0].pop("nodeTaintsPolicy"),
    ],
    "volumes_are_owned_once": [
        lambda documents: pod(worker(documents))["spec"]["securityContext"].pop("fsGroupChangePolicy"),
    ],
    "volumes_exist": [
        lambda documents: pod(worker(documents))["spec"].update(volumes=[]),
        lambda documents: pod(worker(documents))["spec"]["volumes"].append({"name": "more", "emptyDir": {}}),
        lambda documents: documents.remove(find(documents, "ConfigMap", "sluice-hla-config")),
        lambda documents: pod(hla(documents))["spec"]["volumes"].append(
            {"name": "config", "persistentVolumeClaim": {"claimName": "data-sluice-worker-a-32"}}),
    ],
    "configs_reach_running_aggregators": [
        lambda documents: containers(hla(documents))[0]["volumeMounts"][0].update(subPath="aggregator.json"),
        lambda documents: pod(find(documents, "Deployment", "sluice-mla-a"))["spec"]["volumes"][0]["configMap"].update(
            name="sluice-mla-config-a-5tk2ctmtdm"),
        lambda documents: pod(hla(documents))["spec"]["volumes"][0]["configMap"].update(
            name="sluice-hla-config-5tk2ctmtdm"),
        lambda documents: pod(worker(documents))["spec"]["volumes"][0]["configMap"].update(name="sluice-worker-config-a"),
    ],
    "pods_have_time_to_drain": [
        lambda documents: pod(hla(documents))["spec"].update(terminationGracePeriodSeconds=25),
    ],
    "networks_are_closed": [
        lambda documents: documents.remove(find(documents, "NetworkPolicy", "default-deny")),
        lambda documents: find(documents, "NetworkPolicy", "worker")["spec"]["podSelector"].update(
            matchLabels={"app.kubernetes.io/component": "workers"}),
        lambda documents: find(documents, "NetworkPolicy", "worker")["spec"]["ingress"][0]["ports"][0].update(port=7100),
        lambda documents: find(documents, "NetworkPolicy", "mid-level")["spec"]["egress"][0]["ports"][0].update(port=1),
        lambda documents: find(documents, "NetworkPolicy", "worker")["spec"]["ingress"][0]["from"][0].update(
            podSelector={"matchLabels": {"app.kubernetes.io/component": "mid"}}),
    ],
    "networks_let_through_what_is_asked": [
        lambda documents: documents.remove(network(documents, "dns")),
        lambda documents: network(documents, "dns")["spec"]["egress"][0]["ports"].pop(0),
        lambda documents: network(documents, "dns")["spec"]["podSelector"].update(
            matchLabels={"app.kubernetes.io/part-of": "sluice"}),  # clients lack this label
        lambda documents: documents.remove(network(documents, "clients")),
        lambda documents: documents.remove(network(documents, "high-level")),
        lambda documents: documents.remove(network(documents, "mid-level")),
        lambda documents: documents.remove(network(documents, "worker")),
        lambda documents: network(documents, "high-level")["spec"]["ingress"][0]["from"].pop(0),
        lambda documents: network(documents, "high-level")["spec"]["ingress"][0]["from"].pop(1),
        lambda documents: network(documents, "mid-level")["spec"].pop("egress"),
        lambda documents: network(documents, "worker")["spec"]["podSelector"]["matchLabels"].update(
            {"sluice/mid-level": "a"}),
    ],
    "networks_let_prometheus_in": [
        lambda documents: documents.remove(network(documents, "metrics")),
        lambda documents: network(documents, "metrics")["spec"]["ingress"][0]["ports"].pop(1),
        lambda documents: network(documents, "metrics")["spec"]["podSelector"]["matchExpressions"][0]["values"].remove(
            "sluice-link"),
    ],
    "metrics_are_scraped": [
        lambda documents: find(documents, "PrometheusRule", "sluice")["metadata"].pop("labels"),
        lambda documents: find(documents, "PodMonitor", "sluice")["metadata"]["labels"].pop("release"),
        lambda documents: find(documents, "PodMonitor", "sluice")["spec"]["podMetricsEndpoints"][0].update(port="http"),
        lambda documents: pod(hla(documents))["metadata"]["labels"].update({"app.kubernetes.io/name": "aggregator"}),
    ],
}


def daemon(documents):
    return find(documents, "DaemonSet", "sluice-proxy-node")


def sidecar(documents):
    return manifests.init_containers(find(documents, "Job", "fan-out-go-sidecar"))[0]


def redirect(documents):
    job = find(documents, "Job", "fan-out-python-redirect")
    return next(each for each in manifests.init_containers(job) if each["name"] == "redirect-connections")


def mount_socket(workload):
    pod(workload)["spec"].setdefault("volumes", []).append({"name": "socket", "hostPath": {"path": "/run/sluice-proxy"}})
    containers(workload)[0].setdefault("volumeMounts", []).append({"name": "socket", "mountPath": "/run/sluice-proxy"})


# The same for the overlay `proxy`.
PROXY_BREACHES = {
    "containers_are_restricted": [
        lambda documents: sidecar(documents)["securityContext"].update(readOnlyRootFilesystem=False),
        lambda documents: containers(daemon(documents))[0]["securityContext"].pop("capabilities"),
        lambda documents: redirect(documents)["securityContext"]["capabilities"].update(add=["NET_ADMIN", "SYS_ADMIN"]),
    ],
    "host_paths_fit_the_namespace": [
        lambda documents: manifests.of_kind(documents, "Namespace")[0]["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/enforce": "restricted"}),
    ],
    "sockets_of_nodes_belong_to_one_program": [
        lambda documents: pod(find(documents, "Job", "fan-out-go-node"))["spec"]["securityContext"].update(runAsUser=61400),
        lambda documents: mount_socket(find(documents, "Job", "fan-out-go-node")),
    ],
    "servers_are_probed": [
        lambda documents: containers(daemon(documents))[0]["livenessProbe"]["httpGet"].update(port="http"),
        lambda documents: containers(daemon(documents))[0].pop("startupProbe"),
    ],
    "configs_reach_running_proxies": [
        lambda documents: pod(daemon(documents))["spec"]["volumes"][0]["configMap"].update(
            name="sluice-proxy-node-config-5tk2ctmtdm"),
        lambda documents: sidecar(documents)["volumeMounts"][0].update(subPath="proxy.json"),
    ],
    "proxies_have_time_to_drain": [
        lambda documents: pod(daemon(documents))["spec"].update(terminationGracePeriodSeconds=10),
        lambda documents: pod(find(documents, "Job", "fan-out-go-sidecar"))["spec"].update(terminationGracePeriodSeconds=5),
    ],
    "networks_let_through_what_is_asked": [
        lambda documents: network(documents, "answers")["spec"]["ingress"][0]["from"].pop(0),
        lambda documents: network(documents, "answers")["spec"]["ingress"][0]["from"].pop(1),
        lambda documents: network(documents, "answers")["spec"]["ingress"][0]["from"].pop(2),
    ],
    "networks_let_clients_to_the_proxy_of_their_node": [
        lambda documents: network(documents, "proxy-node")["spec"]["ingress"].pop(0),
        lambda documents: documents.remove(network(documents, "proxy-node-clients")),
    ],
    "networks_let_prometheus_in": [
        lambda documents: network(documents, "proxy-node")["spec"]["ingress"].pop(1),
        lambda documents: documents.remove(network(documents, "proxy-sidecar-metrics")),
        lambda documents: documents.remove(network(documents, "proxy-redirect-metrics")),
    ],
}


def job(documents):
    return find(documents, "Job", "sluice-certificates")


def tls_volume(workload):
    return next(each for each in pod(workload)["spec"]["volumes"] if each["name"] == "tls")["secret"]


def tls_mount(workload):
    return next(each for each in containers(workload)[0]["volumeMounts"] if each["name"] == "tls")


def replace_word(workload, before, after):
    """Replaces one word of the command line by others."""
    container = containers(workload)[0]
    for words in (container["command"], container.get("args", [])):
        if before in words:
            words[words.index(before):words.index(before) + 1] = after
            return
    raise AssertionError(f"{manifests.name(workload)} has no word {before}")


def rights(documents):
    return find(documents, "Role", "sluice-certificates")["rules"][0]


# The same for the overlay `dev-mtls`.
MTLS_BREACHES = {
    "containers_are_restricted": [
        lambda documents: containers(find(documents, "CronJob", "sluice-certificates"))[0].pop("securityContext"),
    ],
    "pods_are_by_themselves": [
        lambda documents: pod(job(documents))["spec"].pop("automountServiceAccountToken"),
    ],
    "networks_let_out_to_the_api_server_who_has_a_token": [
        lambda documents: documents.remove(network(documents, "certificates")),
        lambda documents: network(documents, "certificates")["spec"].update(podSelector={}),
        lambda documents: network(documents, "certificates")["spec"]["egress"][0].pop("ports"),
        lambda documents: network(documents, "certificates")["spec"]["egress"][0]["ports"].pop(),
    ],
    "tokens_are_for_named_secrets": [
        lambda documents: rights(documents).pop("resourceNames"),
        lambda documents: rights(documents)["resourceNames"].pop(),
        lambda documents: rights(documents)["verbs"].append("list"),
        lambda documents: rights(documents)["resources"].append("configmaps"),
        lambda documents: documents.remove(find(documents, "RoleBinding", "sluice-certificates")),
        lambda documents: find(documents, "RoleBinding", "sluice-certificates")["subjects"][0].update(namespace="other"),
        lambda documents: pod(hla(documents))["spec"].update(serviceAccountName="sluice-certificates"),
        lambda documents: find(documents, "Secret", "sluice-tls-worker").update(data={"tls.crt": ""}),
    ],
    "certificates_reach_running_programs": [
        lambda documents: tls_volume(hla(documents)).update(secretName="sluice-tls-authority"),
        lambda documents: tls_volume(hla(documents)).pop("items"),
        lambda documents: tls_mount(worker(documents)).update(subPath="tls.crt"),
        lambda documents: tls_mount(worker(documents)).pop("readOnly"),
        lambda documents: documents.remove(find(documents, "Secret", "sluice-tls-authority")),
    ],
    "programs_show_and_ask_for_certificates": [
        lambda documents: replace_word(hla(documents), "--tls-client-ca=/etc/sluice-tls/ca.crt", []),
        lambda documents: replace_word(worker(documents), "--tls-client-ca=/etc/sluice-tls/ca.crt", []),
        lambda documents: tls_volume(worker(documents)).update(secretName="sluice-tls-client"),
        lambda documents: tls_mount(worker(documents)).update(mountPath="/etc/tls"),
    ],
    "programs_find_the_names_that_they_ask_for": [
        lambda documents: replace_word(hla(documents), "--tls-server-name=spiffe://sluice/mid-level",
                                       ["--tls-server-name=spiffe://sluice/worker"]),
        lambda documents: tls_volume(find(documents, "Deployment", "sluice-mla-a")).update(secretName="sluice-tls-high-level"),
        lambda documents: tls_volume(hla(documents)).update(secretName="sluice-tls-mid-level"),
    ],
}

def reader(documents):
    return find(documents, "Job", "read-srus")


def own_proxy(documents):
    return manifests.init_containers(reader(documents))[0]


# The same for the overlay `proxy-mtls`.
PROXY_MTLS_BREACHES = {
    "proxies_admit_the_users_of_their_pods": [
        lambda documents: pod(reader(documents))["spec"]["securityContext"].update(runAsUser=1000),
        lambda documents: containers(reader(documents))[0]["securityContext"].update(runAsUser=1000),
        lambda documents: find(documents, "ConfigMap", "sluice-proxy-sidecar-config")["data"].update({"proxy.json": "{}"}),
    ],
    "programs_show_and_ask_for_certificates": [
        lambda documents: own_proxy(documents)["args"].pop(0),
        lambda documents: manifests.secret_volumes(reader(documents))["sluice-tls"].update(secretName="sluice-tls-client"),
    ],
    "programs_find_the_names_that_they_ask_for": [
        lambda documents: own_proxy(documents)["args"].remove("--tls-server-name=spiffe://sluice/worker"),
    ],
    "networks_let_through_what_is_asked": [
        lambda documents: documents.remove(network(documents, "proxy-sidecar-workers")),
        lambda documents: documents.remove(network(documents, "workers-of-proxies")),
    ],
}


class PolicyTest(unittest.TestCase):
    def test_overlays_keep_to_the_policies(self):
        for overlay in manifests.OVERLAYS:
            for policy in policies.POLICIES:
                with self.subTest(overlay=overlay, policy=policy.__name__):
                    self.assertEqual(list(policy(manifests.installed(overlay))), [])

    def test_examples_keep_to_them_beside_an_installation(self):
        for policy in policies.POLICIES:
            with self.subTest(policy=policy.__name__):
                documents = manifests.installed("production") + manifests.examples()
                self.assertEqual(list(policy(documents)), [])

    def test_each_policy_finds_what_breaks_it(self):
        breaches_of = {"monitoring": BREACHES, "proxy": PROXY_BREACHES, "dev-mtls": MTLS_BREACHES,
                       "proxy-mtls": PROXY_MTLS_BREACHES}
        self.assertEqual(set().union(*breaches_of.values()), {policy.__name__ for policy in policies.POLICIES})
        for overlay, breaches in breaches_of.items():
            for policy in (each for each in policies.POLICIES if each.__name__ in breaches):
                for number, breach in enumerate(breaches[policy.__name__]):
                    with self.subTest(overlay=overlay, policy=policy.__name__, breach=number):
                        documents = manifests.installed(overlay)
                        breach(documents)
                        self.assertNotEqual(list(policy(documents)), [])

    def test_no_network_policy_can_be_left_out(self):
        for overlay in manifests.OVERLAYS:
            for policy in manifests.of_kind(manifests.installed(overlay), "NetworkPolicy"):
                with self.subTest(overlay=overlay, policy=policy["metadata"]["name"]):
                    documents = manifests.installed(overlay)
                    documents.remove(policy)
                    found = [breach for each in policies.POLICIES for breach in each(documents)]
                    self.assertNotEqual(found, [])

    def test_both_ways_make_the_same_certificates(self):
        by_job, by_manager = (manifests.certificates(manifests.installed(each)) for each in ("dev-mtls", "production+cert-manager"))
        own = {secret: (uses, {name.replace("$(NAMESPACE)", "sluice") for name in names})
               for secret, (uses, names) in by_job.items()}
        self.assertEqual(own, by_manager)

    def test_no_two_objects_have_one_name(self):
        for overlay in manifests.OVERLAYS:
            documents = manifests.installed(overlay)
            names = [manifests.name(document) for document in documents]
            self.assertEqual(sorted(names), sorted(set(names)), overlay)

    def test_an_overlay_is_one_namespace(self):
        for overlay in manifests.OVERLAYS:
            documents = manifests.installed(overlay)
            (namespace,) = manifests.of_kind(documents, "Namespace")
            for document in documents:
                if document is not namespace:
                    self.assertEqual(document["metadata"]["namespace"], namespace["metadata"]["name"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
