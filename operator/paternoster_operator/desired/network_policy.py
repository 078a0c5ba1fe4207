"""The engines' NetworkPolicy: who reaches which of their ports, where the cluster's network enforces it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.types.runtime import Runtime
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.ownership import ChildNames

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace that the API server sets itself."""


@dataclass(frozen=True)
class Peers:
    """Who may reach engines, as label selectors; everything else is kept out by a NetworkPolicy of each fleet."""

    namespace: str
    """Where operator and gateways run."""
    operator: Mapping[str, str]
    """Labels of the operator's pods: they may reach both ports."""
    gateway: Mapping[str, str] | None = None
    """Labels of the gateways' pods: they may reach the API port. None without gateways, when every pod may."""
    scrapers: Mapping[str, str] | None = None
    """Labels of the namespaces whose pods may scrape /metrics where it has a port of its own, or keys guard the rest.

    None where no pod may.
    """


def build_network_policy(spec: LLMDeploymentSpec, names: ChildNames, peers: Peers) -> dict[str, Any]:
    """Gateways reach the API port, the operator both, scrapers one with metrics; other policies can allow more.

    Without gateways every pod reaches the API port, as clients then call the engines themselves. An engine that is not
    ours has that port alone, and its metrics are there. vLLM's plugin asks for a key on every other path, so scrapers
    reach it; SGLang and other servers have no keys, and whom the port admits may use it: scrapers do not reach it.
    During a rollout from one engine to another the fleet has pods of both, and the operator reads and steers both.
    """
    api = _allow_ports(labels.ENGINE_PORT_NAME)
    if peers.gateway is not None:
        api["from"] = [_select_pods(peers.namespace, peers.gateway)]
    operator = _allow_ports(labels.ENGINE_PORT_NAME, labels.ADMIN_PORT_NAME)
    operator["from"] = [_select_pods(peers.namespace, peers.operator)]
    ingress = [api, operator]
    metrics_port = _find_metrics_port(spec.engine.runtime)
    if peers.scrapers is not None and metrics_port is not None:
        scrapers = [{"namespaceSelector": {"matchLabels": dict(peers.scrapers)}}]
        ingress.append({**_allow_ports(metrics_port), "from": scrapers})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata,
        "spec": {
            "podSelector": {"matchLabels": names.selector},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _find_metrics_port(runtime: Runtime) -> str | None:
    """The port on which scrapers can do nothing but read metrics; None where an engine has none."""
    if not runtime.is_foreign:
        return labels.ADMIN_PORT_NAME
    return labels.ENGINE_PORT_NAME if runtime.has_plugin else None


def _allow_ports(*names: str) -> dict[str, Any]:
    return {"ports": [{"port": name, "protocol": "TCP"} for name in names]}


def _select_pods(namespace: str, pod_labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
        "podSelector": {"matchLabels": dict(pod_labels)},
    }
