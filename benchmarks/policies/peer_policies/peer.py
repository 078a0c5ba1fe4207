"""What every peer describes of itself: a name, settings with its own defaults, and what a search may try."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policies.policy import Policy
from paternoster_simulator.profile import Profile
from peer_policies.bounds import Bounds
from peer_policies.engine_facts import EngineFacts

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Peer(Generic[Settings]):
    """One peer; registered under the entry-point group ``paternoster.policies``."""

    name: str
    settings: type[Settings]
    """Frozen dataclass whose defaults are the peer's."""
    start: Callable[[Settings, Bounds, EngineFacts], Policy]
    """Makes the policy of one fleet."""
    search_space: Mapping[str, Sequence[Any]]
    """Setting -> values worth trying, the default among them."""

    def __call__(self, spec: LLMDeploymentSpec, profile: Profile, **chosen: Any) -> Policy:
        """The policy for a fleet; ``chosen`` replaces defaults by name.

        Raises:
            ValueError: a name that is no setting, or a spec without autoscaling.
        """
        setting_names = [field.name for field in fields(self.settings)]  # type: ignore[arg-type]
        for name in chosen:
            if name not in setting_names:
                raise ValueError(f"{name!r} is no setting of {self.name}: known are {', '.join(setting_names)}")
        return self.start(self.settings(**chosen), Bounds.of(spec), EngineFacts.of(spec, profile))
