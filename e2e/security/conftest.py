"""Operator and gateway installed from the chart, and two teams with a namespace each."""

from collections.abc import Iterator

import pytest

from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.release import installed, restricted_namespace
from paternoster_e2e.teams import Teams


@pytest.fixture(scope="module")
def gateway(kubectl: Kubectl) -> Iterator[str]:
    with installed(kubectl, "gateway.replicas=1", "gateway.shutdownDelaySeconds=2", "operator.replicas=1") as url:
        yield url


@pytest.fixture
def teams(kubectl: Kubectl, gateway: str) -> Iterator[Teams]:
    with restricted_namespace(kubectl, Teams.a), restricted_namespace(kubectl, Teams.b):
        yield Teams(kubectl, gateway)
