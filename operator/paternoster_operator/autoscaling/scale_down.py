"""Which replicas a smaller fleet loses, and when, so that no request is cut.

Gateways send a drained replica no further request. Its pod ends once the engine is idle, however long that takes, and
until then a demand that returns lets it serve again without a start. A replica that does not serve yet ends at once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.replica_model import ReplicaModel

ROUTING_SECONDS = 2.0
"""Time in which every gateway has a new routing table: an engine that is idle before may still get a request."""


@dataclass(frozen=True, slots=True)
class ReplicaPod:
    """A pod of the fleet's Deployment that is not being deleted."""

    name: str
    serves: bool
    """False while it starts, or starts again."""
    requests: int | None = None
    """Requests that run and wait in its engine; None where it did not report."""
    drained_seconds: float | None = None
    """Since when it is drained; None where it is not."""

    def may_end(self, longest_seconds: float) -> bool:
        """Whether it is drained and idle, or drained for longer than any request takes."""
        if self.drained_seconds is None:
            return False
        idle = self.requests == 0 and self.drained_seconds >= ROUTING_SECONDS
        return idle or self.drained_seconds >= longest_seconds


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """The way of a Deployment to its target."""

    replicas: int
    """Replicas of the Deployment for now."""
    drained: Collection[str] = ()
    """Pods that gateways are to send nothing."""
    ending: Collection[str] = ()
    """Pods of those that the Deployment is to lose now."""


def plan_scale_down(pods: Collection[ReplicaPod], target: int, longest_seconds: float) -> ScaleDown:
    """Drain as many of ``pods`` as are more than ``target``; those that are drained already stay so first.

    A pod that is not idle after ``longest_seconds`` ends all the same, within its grace period.
    """
    serving = [pod for pod in pods if pod.serves]
    # A Deployment loses pods that do not serve before all others.
    starting = len(pods) - len(serving)
    surplus = max(len(pods) - target - starting, 0)
    drained = sorted(serving, key=_drain_order)[:surplus]
    ending = [pod.name for pod in drained if pod.may_end(longest_seconds)]
    return ScaleDown(target + surplus - len(ending), {pod.name for pod in drained}, set(ending))


def longest_answer_seconds(reports: Iterable[EngineStats], model: ReplicaModel) -> float:
    """The time of the longest answer that an engine gives, at the pace of a full one; 0 while that is unknown."""
    sizes = {(stats.max_model_len, stats.capacity) for stats in reports}
    return max((tokens * (model.step_seconds(capacity) or 0.0) for tokens, capacity in sizes), default=0.0)


def _drain_order(pod: ReplicaPod) -> tuple[bool, bool, int, str]:
    """Drained ones first, then the least work; an engine that did not report comes last."""
    return pod.drained_seconds is None, pod.requests is None, pod.requests or 0, pod.name
