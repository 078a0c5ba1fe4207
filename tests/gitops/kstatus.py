"""How kstatus reads a custom resource: what Flux, ``kubectl wait`` wrappers and kpt conclude from its status.

Reference: sigs.k8s.io/cli-utils/pkg/kstatus, ``status.go::Compute`` with ``generic.go::checkGenericProperties`` and
``checkReadyCondition``; the rules for built-in kinds are left out.
"""

from collections.abc import Mapping
from typing import Any, Literal

Status = Literal["Terminating", "InProgress", "Failed", "Current"]


def compute(document: Mapping[str, Any]) -> Status:
    """The status of a custom resource as the API server shows it."""
    metadata, status = document["metadata"], document.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if "generation" in metadata and status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", [])
    for condition in conditions:  # the first of the two in the list decides
        if condition["status"] == "True" and condition["type"] == "Reconciling":
            return "InProgress"
        if condition["status"] == "True" and condition["type"] == "Stalled":
            return "Failed"
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
