"""A model in an image that the node mounts into the engine's pod: nothing is copied, and no container fetches it.

Container runtimes have image volumes from containerd 2.1 on: `make e2e CONTAINERD=2` has one.
"""

import shutil
from typing import Any

import pytest

from paternoster_e2e.artifacts.images import build_image
from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.fleet import default_model
from paternoster_e2e.kubectl import Kubectl, condition

pytestmark = pytest.mark.timeout(600)

IMAGE, TAG = "smollm2-model", "e2e"
DOCKERFILE = "FROM scratch\nCOPY *.gguf /models/\n"
FIRST = (2, 1)
"""The first containerd that mounts images."""


@pytest.fixture(scope="module")
def image(own_cluster: Cluster, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The reference of an image that has the default model, and that the node has already."""
    [node] = kubectl.list("nodes")
    runtime, _, version = node["status"]["nodeInfo"]["containerRuntimeVersion"].partition("://")
    if runtime != "containerd" or tuple(int(part) for part in version.lstrip("v").split(".")[:2]) < FIRST:
        pytest.skip(f"{runtime} {version} mounts no images: run `make e2e CONTAINERD=2`")
    folder = tmp_path_factory.mktemp("image")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    shutil.copy(default_model(), folder)
    archive = folder / f"{IMAGE}-{TAG}.tar"
    build_image(IMAGE, folder / "Dockerfile", folder, archive, {}, tag=TAG)
    assert own_cluster.node is not None
    own_cluster.node.import_image(archive)
    return f"docker.io/library/{IMAGE}:{TAG}"


def test_a_model_that_the_node_mounts(fleet: Any, image: str) -> None:
    fleet.apply(model={"source": f"oci://{image}-absent", "imagePullPolicy": "Never"})
    message = fleet.until_stalled("ImagePullFailed")
    assert "model.source: " in message
    assert f"{image}-absent" in message
    fleet.apply(model={"source": f"oci://{image}", "imagePullPolicy": "Never"})
    fleet.until_ready()
    assert fleet.chat().status_code == 200
    [pod] = fleet.pods()
    assert "initContainers" not in pod["spec"]
    assert condition(fleet.get(), "Stalled") == {}
