"""All children of an LLMDeployment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.desired.network_policy import Peers, build_network_policy
from paternoster_operator.desired.pdb import build_pdb
from paternoster_operator.desired.rollout import Strategy
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
    fetch_image: str = labels.DEFAULT_FETCH_IMAGE,
    vllm_metrics: bool = False,
    peers: Peers | None = None,
    strategy: Strategy | None = None,
) -> list[dict[str, Any]]:
    """What to apply, in order; the Deployment comes last, when what its pods rely on is there.

    Without ``peers`` there is no NetworkPolicy; ``strategy`` is as for :func:`build_deployment`. The rest is as in
    :class:`Installation`.
    """
    children = [build_secret(resource, roots.gateway, roots.admin), build_service(resource), build_pdb(resource)]
    if peers is not None:
        children.append(build_network_policy(resource, peers))
    installation = Installation(
        engine_image, fetch_image, behind_gateway=bool(roots.gateway), vllm_metrics=vllm_metrics
    )
    return [*children, build_deployment(resource, replicas, installation, strategy)]
