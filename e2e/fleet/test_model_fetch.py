"""A model that is fetched before its engine starts: once for all replicas of a claim, with its progress in the status.

The hub runs in the test's process, on the node's address.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.file_server import Answer
from tests.sources.loopback_hub import LoopbackHub

from paternoster_e2e.artifacts.images import version
from paternoster_e2e.cluster.network import NODE_ADDRESS, isolated
from paternoster_e2e.fleet import default_model
from paternoster_e2e.kubectl import Document, condition, until

pytestmark = pytest.mark.timeout(900)

FILE = "smollm2.gguf"
SECRET = "hub"
CREDENTIALS = {"credentialsSecretRef": {"name": SECRET}}


@pytest.fixture(scope="module")
def weights() -> bytes:
    return default_model().read_bytes()


@pytest.fixture
def hub(weights: bytes) -> Iterator[LoopbackHub]:
    """With one private repository."""
    if not isolated():
        pytest.skip("pods reach the test's process in a cluster of its own alone")
    with LoopbackHub(NODE_ADDRESS).running() as hub:
        hub.add("org/smollm2", {FILE: weights}, private=True)
        yield hub


@pytest.fixture
def claim(fleet: Any, tmp_path: Path) -> Iterator[str]:
    """A PersistentVolumeClaim that pods may write."""
    folder = tmp_path / "models"
    folder.mkdir()
    folder.chmod(0o777)
    size = {"storage": "1Gi"}
    shared: Document = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **shared,
        "capacity": size,
        "claimRef": {"namespace": fleet.namespace, "name": "models"},
        "hostPath": {"path": str(folder)},
    }
    wanted = {**shared, "volumeName": fleet.namespace, "resources": {"requests": size}}
    for kind, metadata, spec in (
        ("PersistentVolume", {"name": fleet.namespace}, volume),
        ("PersistentVolumeClaim", {"name": "models", "namespace": fleet.namespace}, wanted),
    ):
        fleet.kubectl.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
    yield "models"
    fleet.kubectl("delete", "persistentvolume", fleet.namespace, "--wait=false")


def write_secret(fleet: Any, hub: LoopbackHub, token: str) -> None:
    metadata = {"name": SECRET, "namespace": fleet.namespace}
    data = {"HF_TOKEN": token, "HF_ENDPOINT": hub.url}
    fleet.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})


def downloads(hub: LoopbackHub, data: bytes) -> int:
    """How often some byte of the weights was asked for."""
    return len(hub.cdn.of(hub.blob_path(data)))


def test_one_download_for_all_replicas(fleet: Any, hub: LoopbackHub, claim: str, weights: bytes) -> None:
    write_secret(fleet, hub, hub.token)
    model = {**CREDENTIALS, "cache": {"claim": {"name": claim}}}
    fleet.apply(model={**model, "source": "hf://org/smollm2@v9"})
    message = fleet.until_stalled("RevisionNotFound", seconds=120)
    assert "container model: " in message
    assert "v9" in message

    may_go_on = threading.Event()
    answer = hub.cdn.answer

    def held(path: str, headers: dict[str, str]) -> Answer:
        may_go_on.wait(300)
        return answer(path, headers)

    hub.cdn.answer = held
    fleet.apply(model={**model, "source": "hf://org/smollm2"})
    until(lambda: condition(fleet.get(), "Ready").get("reason") == "ModelDownloading", "the download is told", 120)
    assert "hf://org/smollm2 is fetched by lift-" in condition(fleet.get(), "Ready")["message"]
    until(lambda: "(0 % of 0.1 GB)" in condition(fleet.get(), "Ready")["message"], "how far it is is told", 60)
    may_go_on.set()
    fleet.until_ready()
    assert fleet.chat().status_code == 200
    # More than one where the machine was so slow that the hub was asked again.
    fetched = downloads(hub, weights)
    assert fetched >= 1

    num_requests = len(hub.hub.received)
    fleet.apply(model={**model, "source": "hf://org/smollm2"}, replicas=2)
    fleet.until_ready(replicas=2)
    assert downloads(hub, weights) == fetched
    assert len(hub.hub.received) == num_requests, "the hub may be away by then"


def test_credentials_that_do_not_open(fleet: Any, hub: LoopbackHub, weights: bytes) -> None:
    """In a folder that goes with its pod; a new try comes by itself, with the Secret as it is by then."""
    fleet.apply(
        model={**CREDENTIALS, "source": f"hf://org/smollm2/{FILE}", "cache": {"emptyDir": {"sizeLimit": "1Mi"}}}
    )
    assert SECRET in fleet.until_stalled("ConfigurationMissing")
    write_secret(fleet, hub, "hf_" + "x" * 34)
    fleet.until_stalled("Unauthorized", seconds=120)
    write_secret(fleet, hub, hub.token)
    message = fleet.until_stalled("NoSpace", seconds=240)
    assert str(len(weights)) in message
    fleet.apply(
        model={**CREDENTIALS, "source": f"hf://org/smollm2/{FILE}", "cache": {"emptyDir": {"sizeLimit": "1Gi"}}}
    )
    fleet.until_ready()
    assert fleet.chat().status_code == 200
    [pod] = fleet.pods()
    assert "envFrom" not in pod["spec"]["containers"][0]
    images = [container["image"] for part in ("initContainers", "containers") for container in pod["spec"][part]]
    assert images == [f"paternoster-{name}:{version()}" for name in ("operator", "engine")]
