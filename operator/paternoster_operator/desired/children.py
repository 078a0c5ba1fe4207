"""All children of an LLMDeployment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.network_policy import Peers, build_network_policy
from paternoster_operator.desired.pdb import build_pdb
from paternoster_operator.desired.secret import build_secret
from paternoster_operator.desired.service import build_service


@dataclass(frozen=True, slots=True)
class RootKeys:
    """What the keys of every fleet are derived from; the first of each is sent, all are accepted."""

    admin: Sequence[str]
    gateway: Sequence[str] = ()
    """Empty without a gateway."""


def build_children(
    resource: LLMDeployment,
    replicas: int,
    roots: RootKeys,
    *,
    engine_image: str = labels.DEFAULT_ENGINE_IMAGE,
    peers: Peers | None = None,
) -> list[dict[str, Any]]:
    """What to apply, in order; the Deployment comes last, when what its pods rely on is there.

    ``engine_image`` is for a resource that names none; without ``peers`` there is no NetworkPolicy.
    """
    children = [build_secret(resource, roots.gateway, roots.admin), build_service(resource), build_pdb(resource)]
    if peers is not None:
        children.append(build_network_policy(resource, peers))
    return [*children, build_deployment(resource, replicas, engine_image, behind_gateway=bool(roots.gateway))]
