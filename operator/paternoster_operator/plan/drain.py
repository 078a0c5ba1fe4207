"""A scale-down: which pods are drained by an annotation, and priced before the Deployment loses some of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from paternoster_contract import labels
from paternoster_operator.autoscaling.scale_down import ReplicaPod, ScaleDown, plan_scale_down
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import PodView

Annotations = Mapping[str, str | None]
"""None removes one."""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """The way of the pods to a number of replicas."""

    replicas: int
    """Replicas of the Deployment for now."""
    drained: Collection[str]
    """Pods that gateways are to send nothing."""
    annotations: Mapping[str, Annotations]
    """Annotations to change, by pod."""


def plan_drain(observed: Observed, target: int, longest_seconds: float | None) -> DrainPlan:
    """Drain and price pods for ``target`` replicas.

    A drained pod ends after ``longest_seconds`` though it is not idle. None where no gateway routes around drained
    pods: then the Deployment has ``target`` replicas at once.
    """
    plan, deployment = ScaleDown(target), observed.deployment
    requests = {pod: stats.running + stats.waiting for pod, stats in observed.engines.items()}
    # A rollout replaces pods in its own order, and ends each within its grace period.
    if longest_seconds is not None and deployment is not None and not deployment.rolling:
        plan = plan_scale_down(_replica_pods(observed, requests), target, longest_seconds)
    # A pod that has ended meanwhile is not started again.
    replicas = plan.replicas if deployment is None else max(target, min(plan.replicas, deployment.spec_replicas))
    lowered = deployment is not None and replicas < deployment.spec_replicas
    changes = {}
    for pod in (*observed.serving, *observed.drained):
        changes[pod.name] = _drain_annotation(pod, plan, observed.time)
        if lowered and (plan.ending or pod.name in requests):
            changes[pod.name][labels.DELETION_COST] = _deletion_cost(pod.name, plan, requests)
    return DrainPlan(replicas, plan.drained, {pod: made for pod, made in changes.items() if made})


def _replica_pods(observed: Observed, requests: Mapping[str, int]) -> list[ReplicaPod]:
    return [
        *(ReplicaPod(pod.name, serves=False) for pod in observed.pending),
        *(
            ReplicaPod(pod.name, True, requests.get(pod.name), _drained_for(pod, observed.at))
            for pod in (*observed.serving, *observed.drained)
        ),
    ]


def _drained_for(pod: PodView, now: datetime) -> float | None:
    """Seconds; 0 where the clock was set back since."""
    if pod.drained_since is None:
        return None
    return max((now - datetime.fromisoformat(pod.drained_since)).total_seconds(), 0.0)


def _drain_annotation(pod: PodView, plan: ScaleDown, now: str) -> dict[str, str | None]:
    """What is to change of it."""
    if (pod.name in plan.drained) == (pod.drained_since is not None):
        return {}
    return {labels.SCALE_DOWN: now if pod.name in plan.drained else None}


def _deletion_cost(pod: str, plan: ScaleDown, requests: Mapping[str, int]) -> str:
    """Its requests; a pod that is not to end costs more than one that is, whether it reported or not."""
    if pod in plan.ending:
        return "0"
    return str(max(requests.get(pod, 0), 1 if plan.ending else 0))
