"""What every installation must keep to. Each policy is a function of all documents that yields a sentence for each breach."""

import json
import re

from manifests import (config_volumes, containers, find, host_paths, init_containers, name, of_kind, pod, port_names,
                       selected, selects, workloads)

# May be root, for nothing but what its name says.
_OWNER_OF_HOST_PATH = "own-host-path"
_ITS_CAPABILITIES = {"CHOWN", "DAC_READ_SEARCH"}
_CLIENT = {"sluice/client": "true"}  # pods of users, which no overlay has


def _seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def containers_are_restricted(documents):
    for workload in workloads(documents):
        pod_context = pod(workload)["spec"].get("securityContext", {})
        for container in init_containers(workload) + containers(workload):
            where = f"{name(workload)}, {container['name']}"
            own = container.get("securityContext", {})
            owner = container["name"] == _OWNER_OF_HOST_PATH and container in init_containers(workload)
            added = set(own.get("capabilities", {}).get("add", []))
            if own.get("capabilities", {}).get("drop") != ["ALL"] or added - (_ITS_CAPABILITIES if owner else set()):
                yield f"{where} has capabilities"
            if not owner and not own.get("runAsNonRoot", pod_context.get("runAsNonRoot")):
                yield f"{where} may be root"
            if not owner and not own.get("runAsUser", pod_context.get("runAsUser")):
                yield f"{where} has no user"
            if own.get("allowPrivilegeEscalation") is not False:
                yield f"{where} may gain privileges"
            if own.get("readOnlyRootFilesystem") is not True:
                yield f"{where} may write to its image"
            if own.get("privileged"):
                yield f"{where} is privileged"
            if own.get("seccompProfile", pod_context.get("seccompProfile", {})).get("type") != "RuntimeDefault":
                yield f"{where} has no seccomp profile"


def pods_are_by_themselves(documents):
    for workload in workloads(documents):
        spec = pod(workload)["spec"]
        for shared in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            if spec.get(shared):
                yield f"{name(workload)} has {shared}"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name(workload)} gets a token of the API server"


def host_paths_fit_the_namespace(documents):
    for namespace in of_kind(documents, "Namespace"):
        level = namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce")
        with_paths = [name(each) for each in workloads(documents) if host_paths(each)]
        if level not in ("restricted", "baseline", "privileged"):
            yield f"{name(namespace)} enforces nothing"
        elif level != "privileged" and with_paths:
            yield f"{name(namespace)} would refuse the host paths of {with_paths}"
        elif level == "privileged" and not with_paths:
            yield f"{name(namespace)} could be restricted"


def resources_are_given(documents):
    for workload in workloads(documents):
        for container in init_containers(workload) + containers(workload):
            resources = container.get("resources", {})
            for kind, resource in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
                if resource not in resources.get(kind, {}):
                    yield f"{name(workload)}, {container['name']} has no {kind} of {resource}"


def servers_are_probed(documents):
    for workload in of_kind(documents, "Deployment", "StatefulSet", "DaemonSet"):
        for container in containers(workload):
            ports = port_names(workload)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container.get(probe, {})
                port = asked.get("grpc", asked.get("httpGet", {})).get("port")
                if ports.get(port, port) not in ports.values():
                    yield f"{name(workload)}, {container['name']} has no {probe} of one of its ports"


def images_are_pinned(documents):
    for workload in workloads(documents):
        for container in init_containers(workload) + containers(workload):
            _, _, tag = container["image"].rpartition("/")[2].partition(":")
            if tag in ("", "latest"):
                yield f"{name(workload)}, {container['name']} has the image {container['image']}"


def selectors_select(documents):
    for workload in of_kind(documents, "Deployment", "StatefulSet", "DaemonSet"):
        others = [name(each) for each in selected(documents, workload["spec"]["selector"]) if each is not workload]
        if not selects(workload["spec"]["selector"], pod(workload)["metadata"]["labels"]):
            yield f"{name(workload)} does not select its pods"
        if others:
            yield f"{name(workload)} selects the pods of {others}"
    for budget in of_kind(documents, "PodDisruptionBudget"):
        if len(selected(documents, budget["spec"]["selector"])) != 1:
            yield f"{name(budget)} must select one workload"
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        for constraint in pod(workload)["spec"].get("topologySpreadConstraints", []):
            if selected(documents, constraint["labelSelector"]) != [workload]:
                yield f"{name(workload)} spreads other pods than its own"


def servers_survive_a_drain_of_a_node(documents):
    budgets = of_kind(documents, "PodDisruptionBudget")
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        if workload["spec"]["replicas"] > 1:
            labels = pod(workload)["metadata"]["labels"]
            if not any(selects(budget["spec"]["selector"], labels) for budget in budgets):
                yield f"{name(workload)} has no PodDisruptionBudget"


def services_lead_somewhere(documents):
    for service in of_kind(documents, "Service"):
        behind = selected(documents, {"matchLabels": service["spec"]["selector"]})
        if len(behind) != 1:
            yield f"{name(service)} must select one workload"
        for workload in behind:
            for port in service["spec"]["ports"]:
                if port_names(workload).get(port["targetPort"]) != port["port"]:
                    yield f"{name(service)}: {name(workload)} has no port {port['targetPort']} of number {port['port']}"
    for workload in of_kind(documents, "StatefulSet"):
        service = find(documents, "Service", workload["spec"]["serviceName"])
        if service is None or service["spec"].get("clusterIP") != "None":
            yield f"{name(workload)} has no headless Service {workload['spec']['serviceName']}"


def volumes_exist(documents):
    for workload in workloads(documents):
        volumes = {each["name"] for each in pod(workload)["spec"].get("volumes", [])}
        volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
        mounts = [each for container in init_containers(workload) + containers(workload)
                  for each in container.get("volumeMounts", [])]
        for missing in {mount["name"] for mount in mounts} - volumes:
            yield f"{name(workload)} has no volume {missing}"
        for unused in volumes - {mount["name"] for mount in mounts}:
            yield f"{name(workload)} mounts no volume {unused}"
        for _, config in config_volumes(workload):
            if find(documents, "ConfigMap", config) is None:
                yield f"{name(workload)}: there is no ConfigMap {config}"


def configs_reach_running_aggregators(documents):
    """A name with a hash, or a mounted file instead of its folder, would keep a change away from a pod that runs."""
    for workload in selected(documents, {"matchLabels": {"app.kubernetes.io/name": "sluice-aggregator"}}):
        for volume, config in config_volumes(workload):
            if not config.startswith(f"{workload['metadata']['name']}-config") and not re.fullmatch(
                    r"sluice-mla-config-[a-z]", config):
                yield f"{name(workload)}: the ConfigMap {config} has a name that changes"
            for mount in containers(workload)[0]["volumeMounts"]:
                if mount["name"] == volume and "subPath" in mount:
                    yield f"{name(workload)} mounts a file of {config}, which never changes"


def pods_have_time_to_drain(documents):
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        needed = sum(each.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                     for each in containers(workload))
        for _, config in config_volumes(workload):
            for text in find(documents, "ConfigMap", config)["data"].values():
                needed += _seconds(json.loads(text).get("drain_timeout", "10s"))
        if pod(workload)["spec"].get("terminationGracePeriodSeconds", 30) <= needed:
            yield f"{name(workload)} is killed before its {needed} s to drain are over"


def networks_are_closed(documents):
    policies = of_kind(documents, "NetworkPolicy")
    if not any(each["spec"]["podSelector"] == {} and set(each["spec"]["policyTypes"]) == {"Ingress", "Egress"}
               and not each["spec"].get("ingress") and not each["spec"].get("egress") for each in policies):
        yield "nothing denies by default"
    for policy in policies:
        spec = policy["spec"]
        targets = selected(documents, spec["podSelector"])
        if not targets and spec["podSelector"] != {"matchLabels": _CLIENT}:
            yield f"{name(policy)} selects no pods"
        for rule in spec.get("ingress", []):
            yield from _dead_ports(policy, rule, targets)
            yield from _dead_peers(documents, policy, rule["from"])
        for rule in spec.get("egress", []):
            peers = [peer for peer in rule["to"] if "namespaceSelector" not in peer]
            for peer in peers:
                yield from _dead_ports(policy, rule, selected(documents, peer["podSelector"]))
            yield from _dead_peers(documents, policy, peers)


def _dead_ports(policy, rule, targets):
    served = {port for workload in targets for port in port_names(workload).values()}
    for port in rule["ports"]:
        if port["port"] not in served:
            yield f"{name(policy)}: nobody serves port {port['port']}"


def _dead_peers(documents, policy, peers):
    for peer in peers:
        if "namespaceSelector" in peer or peer["podSelector"] == {"matchLabels": _CLIENT}:
            continue
        if not selected(documents, peer["podSelector"]):
            yield f"{name(policy)}: no pods are selected by {peer['podSelector']}"


def metrics_are_scraped(documents):
    for monitor in of_kind(documents, "PodMonitor"):
        watched = selected(documents, monitor["spec"]["selector"])
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            for workload in watched:
                if endpoint["port"] not in port_names(workload):
                    yield f"{name(monitor)}: {name(workload)} has no port {endpoint['port']}"
        for workload in workloads(documents):
            if "admin" in port_names(workload) and workload not in watched:
                yield f"{name(monitor)} leaves out {name(workload)}"
        for workload in watched:
            if not pod(workload)["metadata"]["labels"][monitor["spec"]["jobLabel"]].startswith("sluice-"):
                yield f"{name(workload)}: the rules find jobs by names that begin with sluice-"


POLICIES = (containers_are_restricted, pods_are_by_themselves, host_paths_fit_the_namespace, resources_are_given,
            servers_are_probed, images_are_pinned, selectors_select, servers_survive_a_drain_of_a_node,
            services_lead_somewhere, volumes_exist, configs_reach_running_aggregators, pods_have_time_to_drain,
            networks_are_closed, metrics_are_scraped)
