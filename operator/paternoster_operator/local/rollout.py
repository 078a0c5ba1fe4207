"""Which pods to start and which to end, as a Deployment's controller decides it: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PodFacts(Protocol):
    """What the plan looks at."""

    name: str
    template_hash: str
    created: float

    @property
    def ready(self) -> bool: ...

    @property
    def deletion_cost(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now; the rest follows when pods have become ready or gone."""

    start: int
    end: tuple[str, ...]


def plan_rollout(
    pods: Sequence[PodFacts], *, replicas: int, template_hash: str, max_surge: int, max_unavailable: int
) -> Step:
    """One step towards ``replicas`` pods of the template; ``pods`` are those not being deleted.

    Never more than ``replicas + max_surge`` pods, and never fewer than ``replicas - max_unavailable`` ready ones by our
    own doing (Kubernetes' RollingUpdate).
    """
    new = [pod for pod in pods if pod.template_hash == template_hash]
    old = [pod for pod in pods if pod.template_hash != template_hash]
    # While old pods are replaced the fleet may be larger; a plain change of replicas needs no surge.
    ceiling = replicas + (max_surge if old else 0)
    start = max(0, min(replicas - len(new), ceiling - len(pods)))
    end = [pod.name for pod in _victims_first(new)[: max(0, len(new) - replicas)]]
    unready_old = [pod for pod in _victims_first(old) if not pod.ready]
    ready_old = [pod for pod in _victims_first(old) if pod.ready]
    end += [pod.name for pod in unready_old]
    ready = sum(pod.ready for pod in pods if pod.name not in end)
    spare = max(0, ready - (replicas - max_unavailable))
    end += [pod.name for pod in ready_old[:spare]]
    return Step(start, tuple(end))


def _victims_first(pods: Sequence[PodFacts]) -> list[PodFacts]:
    """Not ready first, then the cheapest to delete, then the newest."""
    return sorted(pods, key=lambda pod: (pod.ready, pod.deletion_cost, -pod.created))
