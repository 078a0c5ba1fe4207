"""An installation with two operators, and one fleet that serves and may scale."""

from collections.abc import Iterator

import pytest

from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import installed, restricted_namespace


@pytest.fixture(scope="module")
def gateway(kubectl: Kubectl) -> Iterator[str]:
    """URL of the gateway."""
    with restricted_namespace(kubectl, NAMESPACE), installed(kubectl) as url:
        kubectl.apply(fleet_document())
        kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=120s")
        yield url
        kubectl("delete", "llmd", "--all", f"--namespace={NAMESPACE}")
