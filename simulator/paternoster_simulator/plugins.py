"""Policies by name: any package can register one under the entry-point group ``paternoster.policies``."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policy import Policy
from paternoster_simulator.profile import Profile

GROUP = "paternoster.policies"

MakePolicy = Callable[[LLMDeploymentSpec, Profile], Policy]
"""What an entry point names: a policy for a manifest on a hardware profile."""


def policy_names() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def make_policy(name: str, spec: LLMDeploymentSpec, profile: Profile) -> Policy:
    """A fresh policy; raises ``ValueError`` where none has this name."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return cast(MakePolicy, entry.load())(spec, profile)
    raise ValueError(f"policy is {name!r}: must be one of {', '.join(policy_names())}")
