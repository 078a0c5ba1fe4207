"""Operator and gateway installed from the chart, and for each test one cheap fleet in a namespace of its own."""

from collections.abc import Iterator
from zlib import crc32

import pytest

from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.cluster.node import Node
from paternoster_e2e.fleet import NAME, Fleet, default_model
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.objects import TARGET_EGRESS, model_volume
from paternoster_e2e.release import SYSTEM, gateway_url, install, restricted_namespace, uninstall


@pytest.fixture(scope="module")
def gateway(kubectl: Kubectl) -> Iterator[str]:
    """URL of the installation's gateway; the installation goes with the module."""
    with restricted_namespace(kubectl, SYSTEM):
        try:
            # Children that are not watched are seen to this often; once in five minutes by default.
            values = (
                "operator.replicas=1",
                "gateway.replicas=1",
                "gateway.shutdownDelaySeconds=2",
                "operator.extraArgs={--resync-seconds=15}",
                TARGET_EGRESS,
            )
            install(kubectl, *values)
            yield gateway_url(kubectl)
        finally:
            uninstall(kubectl)


@pytest.fixture(scope="module")
def second_node(own_cluster: Cluster, gateway: str) -> Iterator[Node]:
    """A node for engines alone: the installation is on the first, and has no image here."""
    images = [image for image in own_cluster.images if image.name.startswith(("pause", "engine"))]
    with own_cluster.second_node(images) as node:
        yield node


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace under the restricted pod security standard; when it goes, so does everything that a test made."""
    test = request.node.name.removeprefix("test_")
    name = "fleet-" + "".join(letter if letter.isalnum() else "-" for letter in test.lower())[:50].strip("-")
    with restricted_namespace(kubectl, name):
        yield name


@pytest.fixture
def fleet(kubectl: Kubectl, gateway: str, namespace: str) -> Fleet:
    """A fleet of a name of its own: that of a deleted fleet is reserved for its namespace for a day."""
    return Fleet(kubectl, namespace, gateway, f"{NAME}-{crc32(namespace.encode()):08x}")


@pytest.fixture
def model_on_volume(fleet: Fleet) -> Iterator[str]:
    """The source of the default model, on a volume that waits for a claim of the fleet's namespace."""
    fleet.kubectl.apply(model_volume(fleet.namespace, default_model().parent))
    yield f"pvc://models/{default_model().name}"
    fleet.kubectl("delete", "persistentvolume", fleet.namespace, "--wait=false")
