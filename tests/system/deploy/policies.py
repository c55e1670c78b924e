"""Policies for every installation. Each policy is a function of all documents that yields a sentence for each
violation."""

import json
import re

from manifests import (asked, certificates, claims, config_volumes, containers, find, host_paths, init_containers, is_proxy, name,
                       of_kind, pod, port_names, secret_volumes, selected, selects, servers, tls_flags, workloads)

# These init containers may run as root, but only for the purposes in their names.
_CAPABILITIES = {"own-host-path": {"CHOWN", "DAC_READ_SEARCH"}, "redirect-connections": {"NET_ADMIN"}}
_CLIENT = {"sluice/client": "true"}  # pods of users; no overlay has any
_NAMESPACE = "kubernetes.io/metadata.name"  # the label that Kubernetes gives to each namespace
_DNS = {"k8s-app": "kube-dns"}, {_NAMESPACE: "kube-system"}
_PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}, {_NAMESPACE: "monitoring"}
_API_SERVER = {443, 6443}  # ports of its Service, and behind it
_HASH = r"-[bcdfghkmt2456789]{10}"  # the end of a name that Kustomize generates


def _seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def containers_are_restricted(documents):
    for workload in workloads(documents):
        pod_context = pod(workload)["spec"].get("securityContext", {})
        for container in init_containers(workload) + containers(workload):
            where = f"{name(workload)}, {container['name']}"
            own = container.get("securityContext", {})
            permitted = _CAPABILITIES.get(container["name"]) if container in init_containers(workload) else None
            added = set(own.get("capabilities", {}).get("add", []))
            if own.get("capabilities", {}).get("drop") != ["ALL"] or added - (permitted or set()):
                yield f"{where} has capabilities"
            if not permitted and not own.get("runAsNonRoot", pod_context.get("runAsNonRoot")):
                yield f"{where} may be root"
            if not permitted and not own.get("runAsUser", pod_context.get("runAsUser")):
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


def sockets_of_nodes_belong_to_one_program(documents):
    """Another program that writes to the folder of a socket can put its own socket there."""
    for owner in of_kind(documents, "DaemonSet"):
        for volume in pod(owner)["spec"].get("volumes", []):
            path = volume.get("hostPath", {}).get("path")
            user = pod(owner)["spec"]["securityContext"]["runAsUser"]
            for other in (each for each in workloads(documents) if path and each is not owner):
                for container in init_containers(other) + containers(other):
                    context = {**pod(other)["spec"].get("securityContext", {}), **container.get("securityContext", {})}
                    if context.get("runAsUser") == user:
                        yield f"{name(other)}, {container['name']} runs as the user {user}, who owns {path}"
                    for mount in container.get("volumeMounts", []):
                        if path == _host_path(other, mount["name"]) and not mount.get("readOnly"):
                            yield f"{name(other)}, {container['name']} can write to {path} of {name(owner)}"


def _host_path(workload, volume):
    volumes = pod(workload)["spec"].get("volumes", [])
    return next((each.get("hostPath", {}).get("path") for each in volumes if each["name"] == volume), None)


def resources_are_given(documents):
    for workload in workloads(documents):
        for container in init_containers(workload) + containers(workload):
            resources = container.get("resources", {})
            for kind, resource in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
                if resource not in resources.get(kind, {}):
                    yield f"{name(workload)}, {container['name']} has no {kind} of {resource}"


def servers_are_probed(documents):
    for workload in of_kind(documents, "Deployment", "StatefulSet", "DaemonSet"):
        for container in servers(workload):
            ports = port_names(workload)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container.get(probe, {})
                port = next((each["port"] for each in asked.values() if isinstance(each, dict)), None)
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
    for budget in budgets:
        for workload in selected(documents, budget["spec"]["selector"]):
            replicas, spec = workload["spec"]["replicas"], budget["spec"]
            evicted = spec["maxUnavailable"] if "maxUnavailable" in spec else replicas - spec["minAvailable"]
            if evicted < 1:
                yield f"{name(budget)} blocks every drain"
            if evicted >= replicas:
                yield f"{name(budget)} protects nothing"
        if budget["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield f"{name(budget)}: a pod that does not work blocks every drain"


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


def workers_keep_their_names(documents):
    """Aggregators call pods of a StatefulSet by name, so every pod must have a name from the start, ready or not."""
    for workload in of_kind(documents, "StatefulSet"):
        if workload["spec"].get("podManagementPolicy") != "Parallel":
            yield f"{name(workload)}: one pod that does not start keeps those behind it away"
        if not find(documents, "Service", workload["spec"]["serviceName"])["spec"].get("publishNotReadyAddresses"):
            yield f"{name(workload)}: a pod that starts or drains has no name"


def replicas_spread_over_nodes_that_take_them(documents):
    """Otherwise a cordoned node counts as empty, and a pod waits for it."""
    for workload in workloads(documents):
        for constraint in pod(workload)["spec"].get("topologySpreadConstraints", []):
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and constraint.get("nodeTaintsPolicy") != "Honor":
                yield f"{name(workload)} waits for nodes that take no pods"


def volumes_are_owned_once(documents):
    """Without this setting the kubelet visits all files of a volume at each start of its pod."""
    for workload in workloads(documents):
        context = pod(workload)["spec"].get("securityContext", {})
        has_claim = "volumeClaimTemplates" in workload["spec"] or any(
            "persistentVolumeClaim" in each for each in pod(workload)["spec"].get("volumes", []))
        if has_claim and context.get("fsGroupChangePolicy") != "OnRootMismatch":
            yield f"{name(workload)} owns all files of its volume at each start"


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
        for volume in pod(workload)["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in claims(documents):
                yield f"{name(workload)}: there is no volume claim {claim}"


def configs_reach_running_proxies(documents):
    """The same rule as for aggregators: a config change must not restart pods of users."""
    for workload in workloads(documents):
        for container in filter(is_proxy, servers(workload)):
            mounts = {each["name"]: each for each in container["volumeMounts"]}
            for config in (each for each in config_volumes(workload) if each[0] in mounts):
                if not re.fullmatch(r"sluice-proxy-(node|sidecar|redirect)-config", config[1]):
                    yield f"{name(workload)}: the ConfigMap {config[1]} has a name that changes"
                if "subPath" in mounts[config[0]]:
                    yield f"{name(workload)} mounts a file of {config[1]}, which never changes"


def proxies_have_time_to_drain(documents):
    for workload in workloads(documents):
        for _, config in config_volumes(workload):
            text = find(documents, "ConfigMap", config)["data"].get("proxy.json") if any(map(is_proxy, servers(workload))) else None
            if text and pod(workload)["spec"].get("terminationGracePeriodSeconds", 30) <= _seconds(
                    json.loads(text).get("drain_timeout", "10s")):
                yield f"{name(workload)} is killed before its proxy has drained"


def configs_reach_running_aggregators(documents):
    """A name with a hash, or a mounted file instead of its folder, would keep a change from a running pod. Other
    programs read their config only at their start, so they need a hash: without it a change would restart nothing."""
    aggregators = selected(documents, {"matchLabels": {"app.kubernetes.io/name": "sluice-aggregator"}})
    for workload in workloads(documents):
        for volume, config in config_volumes(workload):
            if workload not in aggregators:
                if not any(map(is_proxy, servers(workload))) and not re.fullmatch(rf".*{_HASH}", config):
                    yield f"{name(workload)} is not started again when {config} changes"
                continue
            program, _, suffix = workload["metadata"]["name"].removeprefix("sluice-").partition("-")
            if config != "-".join(["sluice", program, "config", *([suffix] if suffix else [])]):
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
            peers = [peer for peer in rule.get("to", []) if not {"namespaceSelector", "ipBlock"} & set(peer)]
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


def _lets(documents, direction, own, peer, peer_namespace, port, protocol="TCP"):
    """Whether the policies for pods with the labels `own` let them accept (ingress) or open (egress) a connection.
    `peer_namespace` has the labels of the peer's namespace; None is the namespace of the policies."""
    policies = [each["spec"] for each in of_kind(documents, "NetworkPolicy")
                if selects(each["spec"]["podSelector"], own) and direction.capitalize() in each["spec"]["policyTypes"]]
    rules = [rule for spec in policies for rule in spec.get(direction, [])]
    return not policies or any(_is_peer(each, peer, peer_namespace)
                               for rule in rules if {"protocol": protocol, "port": port} in rule["ports"]
                               for each in rule.get("from" if direction == "ingress" else "to", []))


def _is_peer(rule, peer, peer_namespace):
    if "ipBlock" in rule or not selects(rule.get("podSelector", {}), peer):
        return False
    if peer_namespace is None:
        return "namespaceSelector" not in rule
    return "namespaceSelector" in rule and selects(rule["namespaceSelector"], peer_namespace)


def _labels(workload):
    return pod(workload)["metadata"]["labels"]


def networks_let_through_what_is_asked(documents):
    """Each pod must reach the workers of its config, clients must reach the Services that no config calls, and all
    must reach the DNS."""
    pods = {"a client": _CLIENT, **{name(each): _labels(each) for each in workloads(documents)}}
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(documents, "Service")}
    wanted = {(name(workload), service) for workload, _, service, _ in asked(documents)}
    wanted |= {("a client", service) for service in set(services) - {service for _, service in wanted}}
    for who, service in sorted(wanted):
        for target in selected(documents, {"matchLabels": services[service]["selector"]}):
            for port in (each["port"] for each in services[service]["ports"]):
                if not _lets(documents, "egress", pods[who], _labels(target), None, port):
                    yield f"{who} may not ask {service}:{port}"
                if not _lets(documents, "ingress", _labels(target), pods[who], None, port):
                    yield f"{service}:{port} may not be asked by {who}"
                if who == "a client" and service == "sluice" and not _lets(
                        documents, "ingress", _labels(target), _CLIENT, _CLIENT, port):
                    yield f"{service}:{port} may not be asked by a client in another namespace"
    for who, labels in pods.items():
        for protocol in ("UDP", "TCP"):
            if not _lets(documents, "egress", labels, *_DNS, 53, protocol):
                yield f"{who} may not ask the DNS by {protocol}"


def networks_let_clients_to_the_proxy_of_their_node(documents):
    for workload in selected(documents, {"matchLabels": {"sluice/proxy": "node"}}):
        for proxy in selected(documents, {"matchLabels": {"app.kubernetes.io/component": "proxy-node"}}):
            port = port_names(proxy)["proxy"]
            if not _lets(documents, "egress", _labels(workload), _labels(proxy), None, port):
                yield f"{name(workload)} may not ask {name(proxy)}"
            if not _lets(documents, "ingress", _labels(proxy), _labels(workload), None, port):
                yield f"{name(proxy)} may not be asked by {name(workload)}"


def networks_let_prometheus_in(documents):
    for workload in workloads(documents):
        if any(map(is_proxy, servers(workload))) and not _lets(
                documents, "ingress", _labels(workload), *_PROMETHEUS, port_names(workload).get("admin")):
            yield f"{name(workload)} does not let Prometheus read the metrics of its proxy"
    for monitor in of_kind(documents, "PodMonitor"):
        for workload in selected(documents, monitor["spec"]["selector"]):
            if not _lets(documents, "ingress", _labels(workload), *_PROMETHEUS, port_names(workload).get("admin")):
                yield f"{name(workload)} does not let Prometheus read its metrics"


def metrics_are_scraped(documents):
    # The Prometheus of the chart kube-prometheus-stack ignores objects without this label.
    for document in of_kind(documents, "PodMonitor", "PrometheusRule"):
        if "release" not in document["metadata"].get("labels", {}):
            yield f"{name(document)} has no label release"
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


def networks_let_out_to_the_api_server_who_has_a_token(documents):
    """The API server has no labels, so such a rule has no peers, and lets a pod out to each address."""
    for workload in workloads(documents):
        rules = [rule for each in of_kind(documents, "NetworkPolicy") if selects(each["spec"]["podSelector"], _labels(workload))
                 for rule in each["spec"].get("egress", []) if "to" not in rule]
        ports = {port["port"] for rule in rules for port in rule.get("ports", [{"port": "any"}])}
        if ports != (_API_SERVER if _has_token(workload) else set()):
            yield f"{name(workload)} is let out to the ports {ports} of all addresses"


def _has_token(workload):
    return any("serviceAccountToken" in source for volume in pod(workload)["spec"].get("volumes", [])
               for source in volume.get("projected", {}).get("sources", []))


def tokens_are_for_named_secrets(documents):
    for role in of_kind(documents, "Role", "ClusterRole"):
        for rule in role["rules"]:
            if role["kind"] == "ClusterRole" or rule["resources"] != ["secrets"] or not set(rule["verbs"]) <= {"get", "patch"}:
                yield f"{name(role)} allows more than to change Secrets"
            if set(rule.get("resourceNames", [])) != {each["metadata"]["name"] for each in of_kind(documents, "Secret")}:
                yield f"{name(role)} is not for the Secrets that are here"
    bound = {subject["name"] for each in of_kind(documents, "RoleBinding") for subject in each["subjects"]
             if find(documents, each["roleRef"]["kind"], each["roleRef"]["name"])
             and find(documents, "ServiceAccount", subject["name"])
             and subject.get("namespace") == each["metadata"]["namespace"]}
    for workload in workloads(documents):
        if _has_token(workload) != (pod(workload)["spec"].get("serviceAccountName") in bound):
            yield f"{name(workload)} has a token without rights, or rights without a token"
    for secret in of_kind(documents, "Secret"):
        if "data" in secret or "stringData" in secret:
            yield f"{name(secret)}: the next `kubectl apply` overwrites its certificate"


def certificates_reach_running_programs(documents):
    """A mounted file instead of its folder would keep a new certificate from a running pod. Without `items`, a program
    would start before its Secret has a certificate, and fail."""
    made = certificates(documents)
    for workload in workloads(documents):
        for volume, secret in secret_volumes(workload).items():
            if secret["secretName"] not in made:
                yield f"{name(workload)}: {secret['secretName']} is not a certificate of a program"
            if {each["key"] for each in secret.get("items", [])} != {"tls.crt", "tls.key", "ca.crt"}:
                yield f"{name(workload)} does not wait for its certificate"
            mounts = [each for container in servers(workload) for each in container.get("volumeMounts", [])
                      if each["name"] == volume]
            if len(mounts) != 1 or "subPath" in mounts[0] or not mounts[0].get("readOnly"):
                yield f"{name(workload)} does not mount {secret['secretName']} as one folder"
    authorities = [each for each in of_kind(documents, "Secret") if each["metadata"]["name"] not in made]
    if made and not of_kind(documents, "Certificate") and len(authorities) != 1:
        yield "the Secrets are not those of the certificates and of one authority"


def _secret_of(workload, container):
    """Returns the Secret of the folder of the container's certificate."""
    mounts = {each["mountPath"]: each["name"] for each in container.get("volumeMounts", [])}
    folder = tls_flags(container).get("certificate", "").rpartition("/")[0]
    return secret_volumes(workload).get(mounts.get(folder), {}).get("secretName")


def _programs(documents):
    """Yields (workload, container, name) of each program of a tree, and of each proxy that identifies its clients."""
    for workload in workloads(documents):
        for container in servers(workload):
            program = container.get("command", [""])[0].rpartition("/")[2]
            redirected = _labels(workload).get("sluice/proxy") == "redirect"
            if program in ("sluice-aggregator", "sluice-worker", "sluice-proxy") and not redirected:
                yield workload, container, program


def programs_show_and_ask_for_certificates(documents):
    made = certificates(documents)
    flags = {"sluice-aggregator": {"certificate", "key", "ca", "client-ca", "server-name"},
             "sluice-worker": {"certificate", "key", "client-ca"}, "sluice-proxy": {"certificate", "key", "ca", "server-name"}}
    uses = {"sluice-aggregator": {"server auth", "client auth"}, "sluice-worker": {"server auth"},
            "sluice-proxy": {"server auth", "client auth"}}
    for workload, container, program in _programs(documents):
        if set(tls_flags(container)) != (flags[program] if made else set()):
            yield f"{name(workload)} does not have the flags of mTLS"
        elif made and made.get(_secret_of(workload, container), (None,))[0] != uses[program]:
            yield f"{name(workload)}: its certificate is not for {uses[program]}"


def programs_find_the_names_that_they_ask_for(documents):
    made = certificates(documents)
    programs = {name(workload): (tls_flags(container).get("server-name"), _secret_of(workload, container))
                for workload, container, _ in _programs(documents)} if made else {}
    services = {each["metadata"]["name"]: each["spec"]["selector"] for each in of_kind(documents, "Service")}
    for workload, _, service, _ in asked(documents):
        for target in selected(documents, {"matchLabels": services[service]}):
            if name(workload) in programs and name(target) in programs:
                wanted, secret = programs[name(workload)][0], programs[name(target)][1]
                if wanted not in made[secret][1]:
                    yield f"{name(workload)}: the certificate of {name(target)} does not have the name {wanted}"
    for target in selected(documents, {"matchLabels": services["sluice"]}) if "sluice" in services else []:
        if programs and "sluice" not in made[programs[name(target)][1]][1]:
            yield f"{name(target)}: its certificate does not have the name that clients call"


def proxies_admit_the_users_of_their_pods(documents):
    """With a certificate, a proxy admits its own user alone to its socket, or those in client_uids."""
    for workload in workloads(documents):
        user = pod(workload)["spec"].get("securityContext", {}).get("runAsUser")
        for proxy in filter(is_proxy, init_containers(workload) if certificates(documents) else []):
            admitted = _proxy_config(documents, workload).get("client_uids") or [proxy["securityContext"]["runAsUser"]]
            folders = re.findall(r"--listen=unix:(\S*)/", " ".join(proxy.get("args", [])))
            sockets = {each["name"] for each in proxy["volumeMounts"] if each["mountPath"] in folders}
            for container in containers(workload):
                calls = sockets & {mount["name"] for mount in container.get("volumeMounts", [])}
                if calls and container["securityContext"].get("runAsUser", user) not in admitted:
                    yield f"{name(workload)}: the proxy refuses the user of {container['name']}"


def _proxy_config(documents, workload):
    found = [find(documents, "ConfigMap", config)["data"] for _, config in config_volumes(workload)]
    return next(json.loads(each["proxy.json"]) for each in found if "proxy.json" in each)


POLICIES = (containers_are_restricted, pods_are_by_themselves, host_paths_fit_the_namespace,
            sockets_of_nodes_belong_to_one_program, resources_are_given,
            servers_are_probed, images_are_pinned, selectors_select, servers_survive_a_drain_of_a_node,
            services_lead_somewhere, workers_keep_their_names, replicas_spread_over_nodes_that_take_them,
            volumes_are_owned_once, volumes_exist, configs_reach_running_aggregators, configs_reach_running_proxies,
            pods_have_time_to_drain, proxies_have_time_to_drain, networks_are_closed, networks_let_through_what_is_asked,
            networks_let_clients_to_the_proxy_of_their_node, networks_let_prometheus_in, metrics_are_scraped,
            networks_let_out_to_the_api_server_who_has_a_token, tokens_are_for_named_secrets, certificates_reach_running_programs,
            programs_show_and_ask_for_certificates, programs_find_the_names_that_they_ask_for,
            proxies_admit_the_users_of_their_pods)
