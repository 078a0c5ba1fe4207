"""A namespace for the installation and one for a fleet; each test installs as its users would."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from paternoster_e2e.kubectl import CommandError, Kubectl
from paternoster_e2e.outage import NAMESPACE
from paternoster_e2e.release import SYSTEM, restricted_namespace, uninstall


@pytest.fixture
def namespaces(kubectl: Kubectl) -> Iterator[None]:
    with restricted_namespace(kubectl, NAMESPACE), restricted_namespace(kubectl, SYSTEM):
        yield
        # A test that failed early may have installed nothing.
        with suppress(CommandError):
            kubectl("delete", "llmd", "--all", f"--namespace={NAMESPACE}")
        with suppress(CommandError):
            uninstall(kubectl)
