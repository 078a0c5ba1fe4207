"""The engines' NetworkPolicy: who reaches which of their ports, where the cluster's network enforces it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.foreign_engine import is_foreign
from paternoster_operator.desired.ownership import child_metadata, pod_selector

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace that the API server sets itself."""


@dataclass(frozen=True)
class Peers:
    """Who may reach engines, as label selectors; everything else is kept out by a NetworkPolicy of each fleet."""

    namespace: str
    """Where operator and gateways run."""
    operator: Mapping[str, str]
    """Labels of the operator's pods: they may reach the admin port."""
    gateway: Mapping[str, str] | None = None
    """Labels of the gateways' pods: they may reach the API port. None without gateways, when every pod may."""
    scrapers: Mapping[str, str] | None = None
    """Labels of the namespaces whose pods may scrape the admin port's /metrics; None where none may."""


def build_network_policy(resource: LLMDeployment, peers: Peers) -> dict[str, Any]:
    """Gateways reach the API port, operator and scrapers the admin port; other policies can allow more.

    Without gateways every pod reaches the API port, as clients then call the engines themselves. An engine that is not
    ours has that port alone: its plugin and its metrics answer there, behind the keys.
    """
    admin_port = labels.ENGINE_PORT_NAME if is_foreign(resource.spec) else labels.ADMIN_PORT_NAME
    api: dict[str, Any] = {"ports": [{"port": labels.ENGINE_PORT_NAME, "protocol": "TCP"}]}
    if peers.gateway is not None:
        api["from"] = [_select_pods(peers.namespace, peers.gateway)]
    admin: dict[str, Any] = {
        "ports": [{"port": admin_port, "protocol": "TCP"}],
        "from": [_select_pods(peers.namespace, peers.operator)],
    }
    if peers.scrapers is not None:
        # Its other routes need the operator's key.
        admin["from"].append({"namespaceSelector": {"matchLabels": dict(peers.scrapers)}})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(resource),
        "spec": {
            "podSelector": {"matchLabels": pod_selector(resource)},
            "policyTypes": ["Ingress"],
            "ingress": [api, admin],
        },
    }


def _select_pods(namespace: str, pod_labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
        "podSelector": {"matchLabels": dict(pod_labels)},
    }
