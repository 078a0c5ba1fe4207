"""The chart installed with one gateway, and a fleet of one engine with one slot and a short queue."""

from collections.abc import Iterator

import pytest

from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.release import installed, restricted_namespace


@pytest.fixture(scope="package")
def page() -> str:
    """Origin of web pages that may call the gateway."""
    return "https://chat.example.org"


@pytest.fixture(scope="package")
def queued() -> int:
    """Requests that may wait in the engine."""
    return 2


@pytest.fixture(scope="package")
def gateway(kubectl: Kubectl, page: str) -> Iterator[str]:
    """URL of a gateway that pages of one origin may call."""
    values = ("operator.replicas=1", "gateway.replicas=1", "gateway.shutdownDelaySeconds=2")
    with installed(kubectl, *values, f"gateway.allowedOrigins={{{page}}}") as url:
        yield url


@pytest.fixture(scope="package")
def fleet(kubectl: Kubectl, gateway: str, queued: int) -> Iterator[Fleet]:
    """It serves, and the gateway has answered for it."""
    with restricted_namespace(kubectl, "gateway-fleet") as namespace:
        fleet = Fleet(kubectl, namespace, gateway)
        fleet.apply(engine={"maxNumSeqs": 1, "maxQueuedRequests": queued, "maxModelLen": 2048})
        fleet.until_ready()
        assert fleet.chat().status_code == 200
        yield fleet
