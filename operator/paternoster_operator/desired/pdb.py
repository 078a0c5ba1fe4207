"""The engines' PodDisruptionBudget."""

from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.ownership import child_metadata, pod_selector


def build_pdb(resource: LLMDeployment) -> dict[str, Any]:
    """Voluntary disruptions take one engine at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(resource),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": pod_selector(resource)},
            # An engine that never came to serve is no reason to keep a node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
