"""One cluster for the whole suite: the user's own where ``KUBECONFIG`` names one, else one that is started here."""

import os
from collections.abc import Iterator

import pytest

from paternoster_e2e.artifacts.components import ensure_programs
from paternoster_e2e.artifacts.images import ensure_images
from paternoster_e2e.cluster.cluster import Cluster, running_cluster
from paternoster_e2e.cluster.network import isolated
from paternoster_e2e.kubectl import Kubectl


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[Cluster]:
    """A cluster whose programs a test may stop and start."""
    if not isolated():
        reason = "no cluster can be started here: run `make e2e`"
        pytest.fail(reason) if os.environ.get("REQUIRE_COMPONENTS") else pytest.skip(reason)
    with running_cluster(ensure_programs(), ensure_images()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest) -> Kubectl:
    """The cluster's administrator."""
    if "KUBECONFIG" in os.environ:
        return Kubectl(os.environ)
    return Kubectl(request.getfixturevalue("own_cluster").environment)
