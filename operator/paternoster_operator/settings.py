"""The operator's settings: one frozen object, a docstring for each field."""

from dataclasses import dataclass
from enum import StrEnum

from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.engine_args import ALONE, Installation
from paternoster_operator.desired.network_policy import Peers

GATEWAY_KEY = Key("default", "paternoster-gateway-key")
ADMIN_KEY = Key("default", "paternoster-admin-key")


class Names(StrEnum):
    """Which names fleets may be served by."""

    GLOBAL = "Global"
    """Any; the fleet that claims one first has it."""
    NAMESPACED = "Namespaced"
    """Such as begin with the fleet's own namespace and a slash: no namespace can take another's."""


@dataclass(frozen=True)
class Settings:
    """How the operator works; what it works on is in the cluster."""

    gateway_url: str | None = None
    """Base URL of the gateway, whose held requests count as demand; None without one. A name with several addresses
    stands for several gateways."""
    endpoint: str | None = None
    """URL of clients in the status; the gateway's, or else the engines' own, when None."""
    engines: Installation = ALONE
    """Settings that the engines of all fleets have in common; a change rolls the fleets that it concerns."""
    installation: str | None = None
    """Name of this installation, by which it claims fleets; None where there can be no other."""
    names: Names = Names.GLOBAL
    """Which names fleets may be served by."""
    gateway_key: Key = GATEWAY_KEY
    """Secret from whose key that of each gateway request is derived; made when there is none. Not asked for without a
    gateway."""
    admin_key: Key = ADMIN_KEY
    """Secret from whose key that of each fleet's admin API is derived; made when there is none."""
    peers: Peers | None = None
    """Who may reach engines; None for no NetworkPolicies."""
    workers: int = 16
    """LLMDeployments reconciled at the same time."""
    look_seconds: float = 5.0
    """Time between two looks at a fleet when nothing happens: the cap loop's period."""
    resync_seconds: float = 300.0
    """Time after which every child is applied again, whatever is remembered: this ends what no watch reports."""
    scrape_timeout_seconds: float = 2.0
    """An engine that has not answered by then is stale."""
