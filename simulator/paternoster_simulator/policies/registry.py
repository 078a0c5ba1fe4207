"""Policies by name: ours, and those that other packages register as ``paternoster.policies``.

Policies of other fleet systems are in ``benchmarks/policies`` and run from a checkout; the wheel has their names alone.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Policy
from paternoster_simulator.profile import Profile

GROUP: Final = "paternoster.policies"
"""Entry-point group of other packages' policies. A name of :data:`BUILT_IN` keeps its meaning."""
OURS: Final = "paternoster"

MakePolicy = Callable[[LLMDeploymentSpec, Profile], Policy]
"""What a name stands for: makes a policy for a manifest on a hardware profile."""

BUILT_IN: Final[Mapping[str, MakePolicy]] = {
    OURS: LawPolicy.from_spec,
    "fixed": FixedPolicy.from_spec,
}


def policy_names() -> list[str]:
    """All names that :func:`make_policy` accepts, sorted."""
    return sorted({*BUILT_IN, *entry_points(group=GROUP).names})


def make_policy(name: str, spec: LLMDeploymentSpec, profile: Profile) -> Policy:
    """A fresh policy.

    Raises:
        ValueError: none has this name, its package is not installed, or it cannot steer such a fleet.
    """
    make = BUILT_IN.get(name)
    if make is None:
        for entry in entry_points(group=GROUP, name=name):
            try:
                make = entry.load()
            except ModuleNotFoundError as error:
                raise ValueError(
                    f"policy is {name!r}: the package {error.name!r} is not installed; policies of other fleet systems "
                    "are in benchmarks/policies and need a checkout of the repository, installed by `make setup`"
                ) from error
    if make is None:
        raise ValueError(f"policy is {name!r}: must be one of {', '.join(policy_names())}")
    return make(spec, profile)
