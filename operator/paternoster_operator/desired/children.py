"""All children of an LLMDeployment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import ALONE, Installation
from paternoster_operator.desired.network_policy import Peers, build_network_policy
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.rollout import Strategy
from paternoster_operator.desired.secret import build_secret
from paternoster_operator.desired.service import build_service

OPTIONAL = {"NetworkPolicy": "networking.k8s.io/v1"}
"""API versions of kinds that a fleet has or lacks by a setting: one that is left from before is removed."""


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
    engines: Installation = ALONE,
    *,
    peers: Peers | None = None,
    strategy: Strategy | None = None,
) -> list[dict[str, Any]]:
    """What to apply, in order; the Deployment comes last, when what its pods rely on is there.

    ``engines``: what they have in common with those of other fleets. Without ``peers`` there is no NetworkPolicy;
    ``strategy`` is as for :func:`build_deployment`.
    """
    names, spec = ChildNames.from_resource(resource), resource.spec
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata,
        "spec": {
            "maxUnavailable": 1,  # of engines at a time, by voluntary disruptions
            "selector": {"matchLabels": names.selector},
            # An engine that never came to serve is no reason to keep a node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
    children = [build_secret(names, roots.gateway, roots.admin), build_service(spec, names), budget]
    if peers is not None:
        children.append(build_network_policy(spec, names, peers))
    installation = replace(engines, behind_gateway=bool(roots.gateway))
    return [*children, build_deployment(resource, names, replicas, installation, strategy)]
