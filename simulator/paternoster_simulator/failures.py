"""Faults that a simulation is given, each at its second."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaDies:
    """``count`` serving pods are gone at once; their Deployment makes new ones."""

    at: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class EngineRestarts:
    """The engines of ``count`` serving pods end and start anew in their pods: counters begin again from zero."""

    at: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class MetricsBlackout:
    """For a while, a share of the pods does not answer the policy's questions; they serve as ever."""

    at: float
    seconds: float
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}: must be above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class ClockJumps:
    """The policy's clock goes ``seconds`` forward, or back where negative."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SlowStartups:
    """Pods made in the time from ``at`` on take ``factor`` times as long to start."""

    at: float
    seconds: float
    factor: float = 5.0

    def __post_init__(self) -> None:
        if self.factor <= 0:
            raise ValueError(f"factor is {self.factor}: must be above 0")


Fault = ReplicaDies | EngineRestarts | MetricsBlackout | ClockJumps | SlowStartups
