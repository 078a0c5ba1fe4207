"""What decides in a simulation, ours or a peer's: it observes a fleet once a period and returns how it should be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paternoster_operator.autoscaling.observation import Observation


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
    max_queue_milliseconds: int | None = None
    """Longest wait in the queue of every engine, 0 for no limit; None leaves it alone."""
    longest_drain_seconds: float | None = None
    """Surplus pods are drained first and end once they are idle, at the latest after this; None: a Deployment ends them
    at once, within their grace period."""


class Policy(Protocol):
    """One instance steers one fleet from its first second to its last."""

    period_seconds: float
    """Seconds of virtual time between two observations."""

    def decide(self, observation: Observation) -> Action:
        """What to do now; called in order of time, once every :attr:`period_seconds`."""
        ...
