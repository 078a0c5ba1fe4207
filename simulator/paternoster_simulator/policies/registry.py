"""Policies by name: ours, the peers', and those that other packages register as ``paternoster.policies``."""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.peers.aibrix_apa import AIBRIX_APA
from paternoster_simulator.policies.peers.aibrix_kpa import AIBRIX_KPA
from paternoster_simulator.policies.peers.dynamo import DYNAMO
from paternoster_simulator.policies.peers.kubeai import KUBEAI
from paternoster_simulator.policies.peers.peer import Peer
from paternoster_simulator.policies.peers.production_stack import PRODUCTION_STACK
from paternoster_simulator.policies.peers.ray_serve import RAY_SERVE
from paternoster_simulator.policies.peers.wva import WVA
from paternoster_simulator.policies.policy import Policy
from paternoster_simulator.profile import Profile

GROUP: Final = "paternoster.policies"
"""Entry-point group of other packages' policies. A name of :data:`BUILT_IN` keeps its meaning."""
OURS: Final = "paternoster"

MakePolicy = Callable[[LLMDeploymentSpec, Profile], Policy]
"""What a name stands for: makes a policy for a manifest on a hardware profile."""

PEERS: Final[tuple[Peer[Any], ...]] = (AIBRIX_APA, AIBRIX_KPA, DYNAMO, KUBEAI, PRODUCTION_STACK, RAY_SERVE, WVA)
BUILT_IN: Final[Mapping[str, MakePolicy]] = {
    OURS: LawPolicy.from_spec,
    "fixed": FixedPolicy.from_spec,
    **{peer.name: peer for peer in PEERS},
}


def policy_names() -> list[str]:
    """All names that :func:`make_policy` accepts, sorted."""
    return sorted({*BUILT_IN, *entry_points(group=GROUP).names})


def make_policy(name: str, spec: LLMDeploymentSpec, profile: Profile) -> Policy:
    """A fresh policy.

    Raises:
        ValueError: none has this name, or it cannot steer such a fleet.
    """
    make = BUILT_IN.get(name)
    if make is None:
        for entry in entry_points(group=GROUP, name=name):
            make = entry.load()
    if make is None:
        raise ValueError(f"policy is {name!r}: must be one of {', '.join(policy_names())}")
    return make(spec, profile)
