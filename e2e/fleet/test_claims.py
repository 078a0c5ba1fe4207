"""GPUs as resource claims (DRA): without the device the status has the scheduler's message; with it the pod is placed.

No driver runs on the test's node: the device is announced by hand, so the pod is scheduled with its claim allocated and
goes no further.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from paternoster_e2e.kubectl import Document, until

pytestmark = pytest.mark.timeout(300)

API = "resource.k8s.io/v1"
CLASS = "lift.paternoster.test"


@pytest.fixture
def device_class(fleet: Any) -> Iterator[str]:
    """A class of devices of which no node has one."""
    fleet.kubectl.apply({"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {}})
    yield CLASS
    fleet.kubectl("delete", "resourceslices,deviceclasses", CLASS, "--ignore-not-found")


def test_a_claim_is_waited_for_and_allocated(fleet: Any, device_class: str) -> None:
    fleet.apply(resources={"gpu": {"count": 1, "claimTemplateName": "one-gpu"}})
    assert "one-gpu" in fleet.until_stalled("InsufficientGPUs")
    fleet.kubectl.apply(template(fleet.namespace, device_class))
    until(lambda: claims(fleet), "the pod's claim is made from the template", 60)
    until(
        lambda: "cannot allocate all claims (1 of 1 nodes)" in fleet.until_stalled("InsufficientGPUs"),
        "the scheduler's words",
        60,
    )
    [node] = fleet.kubectl.list("nodes")
    fleet.kubectl.apply(devices(node["metadata"]["name"]))
    [pod] = until(lambda: [pod for pod in fleet.pods() if "nodeName" in pod["spec"]], "the pod has its node", 120)
    [claim] = claims(fleet)
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["device"]) == (CLASS, "gpu-0")
    assert claim["status"]["reservedFor"][0]["name"] == pod["metadata"]["name"]


def claims(fleet: Any) -> list[Document]:
    found: list[Document] = fleet.kubectl.list("resourceclaims", fleet.namespace)
    return found


def template(namespace: str, device_class: str) -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    metadata = {"name": "one-gpu", "namespace": namespace}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def devices(node: str) -> Document:
    """What a driver on ``node`` would publish: one device."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": CLASS}, "spec": spec}
