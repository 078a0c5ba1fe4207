"""/scale belongs to autoscalers, /status to the operator, and the rest to people: none writes the others' part."""

import json
from collections.abc import Callable

import pytest

from paternoster_e2e.kubectl import CommandError, Document, Kubectl
from paternoster_e2e.objects import merge

Manifest = Callable[..., Document]

SCALABLE = {
    "fixed": {"replicas": 2},
    "neither": {},
    "external": {"replicas": 2, "autoscaling": {"maxReplicas": 4, "mode": "External"}},
}


@pytest.mark.parametrize("name", SCALABLE)
def test_scale_writes_replicas(kubectl: Kubectl, manifest: Manifest, namespace: str, name: str) -> None:
    kubectl("create", "--filename=-", document=manifest(name, **SCALABLE[name]))
    kubectl("scale", f"llmd/{name}", f"--namespace={namespace}", "--replicas=3")
    assert kubectl.get("llmd", name, namespace)["spec"]["replicas"] == 3
    assert scale(kubectl, namespace, name)["spec"] == {"replicas": 3}


def test_scale_is_refused_where_the_operator_scales(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    kubectl("create", "--filename=-", document=manifest("auto", autoscaling={"maxReplicas": 4}))
    with pytest.raises(CommandError, match="replicas must be unset with autoscaling"):
        kubectl("scale", "llmd/auto", f"--namespace={namespace}", "--replicas=3")


def test_scale_serves_replicas_and_selector_of_the_status(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    """What a HorizontalPodAutoscaler reads."""
    kubectl("create", "--filename=-", document=manifest("selected", replicas=2))
    status = {"replicas": 2, "selector": "app.kubernetes.io/instance=selected"}
    merge(kubectl, "llmd", namespace, "selected", {"status": status}, "--subresource=status")
    assert scale(kubectl, namespace, "selected")["status"] == status


def test_status_is_written_by_its_subresource_only(kubectl: Kubectl, manifest: Manifest, namespace: str) -> None:
    kubectl("create", "--filename=-", document=manifest("parted", replicas=2) | {"status": {"replicas": 9}})
    both = {"spec": {"replicas": 5}, "status": {"replicas": 7}}
    before = kubectl.get("llmd", "parted", namespace)
    assert before["status"]["replicas"] == 0

    merge(kubectl, "llmd", namespace, "parted", both, "--subresource=status")
    stored_fleet = kubectl.get("llmd", "parted", namespace)
    assert (stored_fleet["spec"], stored_fleet["status"]["replicas"]) == (before["spec"], 7)
    assert stored_fleet["metadata"]["generation"] == before["metadata"]["generation"]

    merge(kubectl, "llmd", namespace, "parted", {"spec": {"replicas": 5}, "status": {"replicas": 8}})
    wanted = kubectl.get("llmd", "parted", namespace)
    assert (wanted["spec"]["replicas"], wanted["status"]) == (5, stored_fleet["status"])
    assert wanted["metadata"]["generation"] == before["metadata"]["generation"] + 1


def scale(kubectl: Kubectl, namespace: str, name: str) -> Document:
    path = f"/apis/paternoster.dev/v1alpha1/namespaces/{namespace}/llmdeployments/{name}/scale"
    found: Document = json.loads(kubectl("get", f"--raw={path}"))
    return found
