"""Metadata that every child carries."""

from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment


def child_metadata(resource: LLMDeployment, suffix: str = "") -> dict[str, Any]:
    """Name, labels and the owner, so that garbage collection removes the child with its LLMDeployment."""
    return {
        "name": resource.child_name + suffix,
        "namespace": resource.metadata.namespace,
        "labels": labels.engine_labels(resource.metadata.name),
        "ownerReferences": [
            {
                "apiVersion": labels.API_VERSION,
                "kind": labels.KIND,
                "name": resource.metadata.name,
                "uid": resource.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def pod_selector(resource: LLMDeployment) -> dict[str, str]:
    """Labels that choose the engine pods."""
    return labels.engine_labels(resource.metadata.name)
