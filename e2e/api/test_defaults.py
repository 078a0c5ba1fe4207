"""A manifest means the same on a cluster and without one: the API server fills in what the types do."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_e2e.kubectl import CommandError, Document, Kubectl
from paternoster_operator.api.manifest import parse_resource

Manifest = Callable[..., Document]


def test_stored_defaults_are_those_of_the_types(
    kubectl: Kubectl, manifest: Manifest, namespace: str, good: dict[str, Any]
) -> None:
    document = manifest("defaults", **good)
    kubectl("create", "--filename=-", document=document)
    try:
        stored = kubectl.get("llmd", "defaults", namespace)
    finally:
        kubectl("delete", "llmd", "defaults", f"--namespace={namespace}")
    typed = parse_resource(document).model_dump(mode="json", by_alias=True, exclude_none=True)
    limits = stored["spec"]["resources"].get("limits", {})
    limits.update({name: str(quantity) for name, quantity in limits.items()})  # 1 and "1" are the same quantity
    assert without_empty(stored["spec"]) == without_empty(typed["spec"])
    assert parse_resource(stored).spec == parse_resource(document).spec


def test_a_status_nobody_wrote_says_that_it_is_not_observed(
    kubectl: Kubectl, manifest: Manifest, namespace: str
) -> None:
    """kstatus and Argo CD then wait instead of calling it healthy."""
    kubectl("create", "--filename=-", document=manifest("unseen"))
    stored = kubectl.get("llmd", "unseen", namespace)
    assert stored["status"]["observedGeneration"] == -1
    assert stored["metadata"]["generation"] == 1


def test_an_unknown_field_is_refused_or_dropped_as_asked(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    document = manifest("unknown", engine={"maxSeqs": 3})
    with pytest.raises(CommandError, match=r'unknown field "spec\.engine\.maxSeqs"'):
        kubectl("create", "--validate=strict", "--filename=-", document=document)
    kubectl("create", "--validate=ignore", "--filename=-", document=document)
    assert "maxSeqs" not in kubectl.get("llmd", "unknown", namespace)["spec"]["engine"]


def without_empty(value: Any) -> Any:
    """Objects and lists with nothing in them mean the same as none."""
    if isinstance(value, dict):
        compacted = {key: without_empty(child) for key, child in value.items()}
        return {key: child for key, child in compacted.items() if child not in ({}, [])}
    if isinstance(value, list):
        return [without_empty(child) for child in value]
    return value
