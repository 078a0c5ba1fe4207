"""Which pods to start and which to end, as a Deployment's controller decides it: pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the plan looks at, of a pod that is not being deleted."""

    name: str
    updated: bool
    """It runs the latest template."""
    created: float
    """A clock's time: larger is newer."""
    ready: bool
    available: bool
    """Ready for at least minReadySeconds."""
    deletion_cost: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now; the rest follows when pods have become available or gone."""

    start: int
    end: tuple[str, ...]


def plan_rollout(pods: Sequence[PodFacts], *, replicas: int, max_surge: int, max_unavailable: int) -> Step:
    """One step towards ``replicas`` pods of the latest template.

    Never more than ``replicas + max_surge`` pods by our own doing, and none that is available is ended while it leaves
    fewer than ``replicas - max_unavailable`` of them (Kubernetes' RollingUpdate).
    """
    new = _victims_first([pod for pod in pods if pod.updated])
    old = _victims_first([pod for pod in pods if not pod.updated])
    # While old pods are replaced the fleet may be larger; a plain change of replicas needs no surge.
    ceiling = replicas + (max_surge if old else 0)
    start = max(0, min(replicas - len(new), ceiling - len(pods)))
    end = [pod.name for pod in new[: max(0, len(new) - replicas)]]
    end += [pod.name for pod in old if not pod.available]
    left = sum(pod.available for pod in pods if pod.name not in end)
    spare = max(0, left - max(0, replicas - max_unavailable))
    end += [pod.name for pod in old if pod.available][:spare]
    return Step(start, tuple(end))


def _victims_first(pods: Sequence[PodFacts]) -> list[PodFacts]:
    """Not ready first, then the cheapest to delete, then the newest."""
    return sorted(pods, key=lambda pod: (pod.ready, pod.deletion_cost, -pod.created))
