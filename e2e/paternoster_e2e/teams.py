"""Two teams on one cluster, with a namespace each."""

from dataclasses import dataclass

from paternoster_e2e.fleet import NAME, Fleet
from paternoster_e2e.kubectl import Kubectl


@dataclass(frozen=True)
class Teams:
    """``a`` was first."""

    kubectl: Kubectl
    gateway: str
    a: str = "team-a"
    b: str = "team-b"

    def fleet(self, namespace: str, name: str = NAME) -> Fleet:
        return Fleet(self.kubectl, namespace, self.gateway, name)
