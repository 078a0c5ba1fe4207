"""The API server sends an operator no object of other owners, and a child that lost its label gets it back."""

import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paternoster_contract import labels
from paternoster_e2e.cluster.processes import Service
from paternoster_e2e.kubectl import Document, Kubectl, until

Manifest = Callable[..., Document]
NOWHERE = {"nodeSelector": {"example.com/no-node": "has-it"}}
HELM = {labels.MANAGED_BY: "Helm", labels.INSTANCE: "shop", labels.COMPONENT: labels.ENGINE_COMPONENT}
CHILDREN = {"Deployment", "ReplicaSet", "Pod", "Service", "PodDisruptionBudget"}


def foreign_objects(namespace: str) -> list[Document]:
    """One of each kind that fleets have, by Helm; the ReplicaSet and its pod by the Deployment."""
    gated = {"schedulingGates": [{"name": "example.com/never"}], "containers": [{"name": "shop", "image": "shop:1"}]}
    selector = {"matchLabels": HELM}
    template = {"metadata": {"labels": HELM}, "spec": gated}
    parts = {
        ("apps/v1", "Deployment"): {"replicas": 1, "selector": selector, "template": template},
        ("v1", "Service"): {"selector": HELM, "ports": [{"port": 80}]},
        ("policy/v1", "PodDisruptionBudget"): {"maxUnavailable": 1, "selector": selector},
    }
    metadata = {"name": "shop", "namespace": namespace, "labels": HELM}
    return [
        {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec} for (group, kind), spec in parts.items()
    ]


@pytest.fixture
def operator(kubectl: Kubectl, namespace: str, tmp_path: Path) -> Iterator[str]:
    """The URL of an operator of ``namespace``, which starts beside what the test has made by then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for document in foreign_objects(namespace):
        kubectl("create", "--filename=-", document=document)
    until(lambda: kubectl.list("pods", namespace), "the foreign Deployment's pod", 60)
    secrets = [f"--{hop}-key-secret={namespace}/{hop}-key" for hop in ("gateway", "admin")]
    words = ["operator", f"--namespace={namespace}", f"--port={port}", f"--lease-namespace={namespace}", *secrets]
    command = [Path(sys.executable).with_name("paternoster"), *words]
    service = Service("operator", command, tmp_path / "operator.log", kubectl.environment)
    service.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        service.stop()


def received(url: str) -> dict[tuple[str, str], float]:
    """Objects that the operator's watches received, by kind and event."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
    samples = (sample for family in families for sample in family.samples)
    return {
        (sample.labels["kind"], sample.labels["event"]): sample.value
        for sample in samples
        if sample.name == "paternoster_operator_watch_objects_total"
    }


def test_no_foreign_object_is_received(kubectl: Kubectl, manifest: Manifest, namespace: str, operator: str) -> None:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(operator + "/readyz", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    until(ready, "the operator has listed everything", 60)
    for kind in ("deployment", "service", "poddisruptionbudget", "replicasets", "pods"):
        kubectl("annotate", kind, "--selector", f"{labels.MANAGED_BY}=Helm", f"--namespace={namespace}", "seen=no")
    kubectl("create", "--filename=-", document=manifest("ride", **NOWHERE))
    until(lambda: {kind for kind, event in received(operator) if event == "ADDED"} >= CHILDREN, "the children", 60)
    found = received(operator)
    assert {kind: number for (kind, event), number in found.items() if event == "ADDED"} == {
        labels.KIND: 1, **dict.fromkeys(CHILDREN, 1),
    }  # fmt: skip
    assert not {kind for kind, event in found if event == "LISTED"} & CHILDREN

    kubectl("label", "service", "ride", f"--namespace={namespace}", f"{labels.MANAGED_BY}-")
    until(lambda: received(operator).get(("Service", "ADDED")) == 2, "the Service has its label again", 60)
    assert received(operator)["Service", "DELETED"] == 1
    stored = kubectl.get("service", "ride", namespace)["metadata"]["labels"]
    assert stored.items() >= labels.engine_labels("ride").items()
