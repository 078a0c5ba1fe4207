"""Objects of single fleets, read once from an API server for a command, in place of what watches cached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract import labels
from paternoster_operator.cluster.kubernetes import KubernetesCluster
from paternoster_operator.cluster.port import Key

_CHILDREN = {
    "Deployment": "apps/v1",
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}
_Objects = dict[tuple[str, str], list[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class OneTimeCache:
    """Implements :class:`paternoster_operator.cluster.kubernetes.Cache`."""

    resources: _Objects = field(default_factory=dict)
    children: dict[str, _Objects] = field(default_factory=lambda: {kind: {} for kind in _CHILDREN})
    replica_sets: _Objects = field(default_factory=dict)
    pods: _Objects = field(default_factory=dict)

    async def read_fleet(self, cluster: KubernetesCluster, key: Key) -> Mapping[str, Any] | None:
        """Read the LLMDeployment, with what its operator made, through ``cluster``; None where it is not there."""
        metadata = {"namespace": key.namespace, "name": key.name}
        found = await cluster.read_object({"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": metadata})
        if found is None:
            return None
        self.resources[key] = [found]
        for kind, version in _CHILDREN.items():
            self.children[kind][key] = [*await cluster.list_labelled(version, kind, key)]
        self.replica_sets[key] = [*await cluster.list_labelled("apps/v1", "ReplicaSet", key)]
        self.pods[key] = [*await cluster.list_labelled("v1", "Pod", key)]
        return found
