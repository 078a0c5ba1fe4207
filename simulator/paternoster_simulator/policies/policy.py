"""What decides in a simulation, ours or a peer's: it observes a fleet now and then and says how it should be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paternoster_contract.stats import EngineStats


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy can see at one moment: what the cluster tells, and what each engine answered to ``GET /stats``."""

    now: float
    """Seconds of virtual time."""
    replicas: int
    """Pods that are asked for."""
    serving: tuple[str, ...]
    """Pods that take requests."""
    pending: tuple[str, ...]
    """Pods on their way."""
    draining: tuple[str, ...]
    """Pods that finish what they have and go."""
    engines: Mapping[str, EngineStats]
    """By pod, of those that serve or drain; a pod that did not answer is missing."""
    held: int = 0
    """Requests that the gateway holds for want of a replica."""
    in_flight: int = 0
    """Requests that the gateway has sent on and not yet answered in full."""
    requests_total: int = 0
    """Requests that have come to the gateway so far."""
    startups: tuple[float, ...] = ()
    """Seconds from creation to serving of the pods that have begun to serve since the observation before."""


@dataclass(frozen=True, slots=True)
class Action:
    """How the fleet should be from now on."""

    replicas: int
    cap: int | None = None
    """Live cap of every engine; None leaves it alone."""
    decisions: tuple[Mapping[str, Any], ...] = field(default=())
    """What was decided and why, as documents in the form of the status field ``decisions``; for the record only."""
    token_budget: int | None = None
    """Token budget of every engine; None leaves it alone."""


class Policy(Protocol):
    """One instance steers one fleet from its first second to its last."""

    period_seconds: float
    """How often it wants to observation."""

    def decide(self, observation: Observation) -> Action:
        """What to do now; called in order of time, once every :attr:`period_seconds`."""
        ...
