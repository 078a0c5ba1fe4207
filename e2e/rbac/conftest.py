"""What a fleet needs in a cluster where only the control plane is real: a node, engines, and an operator's account."""

import uuid
from collections.abc import Iterator

import pytest

from paternoster_e2e.fakes.engine import FakeEngines, engines_of_pods
from paternoster_e2e.fakes.fake_node import FakeNode, fake_node
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.objects import apply_crd
from paternoster_e2e.permissions import ChartPermissions, chart_permissions


@pytest.fixture(scope="module")
def node(kubectl: Kubectl) -> Iterator[FakeNode]:
    with fake_node(kubectl, f"fake-{uuid.uuid4().hex[:6]}") as node:
        yield node


@pytest.fixture(scope="module")
def engines() -> Iterator[FakeEngines]:
    with engines_of_pods() as engines:
        yield engines


@pytest.fixture(scope="module")
def crd(kubectl: Kubectl) -> None:
    apply_crd(kubectl)


@pytest.fixture(scope="module")
def namespaced(kubectl: Kubectl) -> ChartPermissions:
    """With ``rbac.scope=namespaced``."""
    return chart_permissions(kubectl, "namespaced")


@pytest.fixture(scope="module")
def clusterwide(kubectl: Kubectl) -> ChartPermissions:
    """With ``rbac.scope=cluster``."""
    return chart_permissions(kubectl, "cluster")
