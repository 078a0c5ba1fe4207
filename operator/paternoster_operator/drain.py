"""Applies a scale-down: pods are drained by an annotation, and priced before the Deployment loses some of them."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from paternoster_contract import labels
from paternoster_operator.autoscaling.scale_down import ReplicaPod, ScaleDown, plan_scale_down
from paternoster_operator.cluster.port import Cluster, Key
from paternoster_operator.observe import Observed
from paternoster_operator.pods.view import PodView

Annotations = dict[str, str | None]
"""None removes one."""


async def drain_surplus(
    cluster: Cluster,
    key: Key,
    observed: Observed,
    requests: Mapping[str, int],
    target: int,
    longest_seconds: float | None,
    now: datetime,
) -> tuple[int, Observed]:
    """Annotate the pods for ``target`` replicas.

    Returns the Deployment's replicas for now, and the pods as they are then.

    Args:
        requests: that run and wait in each engine that reported, by pod.
        longest_seconds: after which a drained pod ends though it is not idle. None where no gateway routes around
            drained pods: then the Deployment has ``target`` replicas at once.
    """
    plan, deployment = ScaleDown(target), observed.deployment
    # A rollout replaces pods in its own order, and ends each within its grace period.
    if longest_seconds is not None and deployment is not None and not deployment.rolling:
        plan = plan_scale_down(_replica_pods(observed, requests, now), target, longest_seconds)
    # A pod that has ended meanwhile is not started again.
    replicas = plan.replicas if deployment is None else max(target, min(plan.replicas, deployment.spec_replicas))
    lowered = deployment is not None and replicas < deployment.spec_replicas
    changes = {}
    for pod in (*observed.serving, *observed.drained):
        changes[pod.name] = _drain_annotation(pod, plan, now)
        if lowered and (plan.ending or pod.name in requests):
            changes[pod.name][labels.DELETION_COST] = _deletion_cost(pod.name, plan, requests)
    await asyncio.gather(*(cluster.annotate_pod(key, pod, made) for pod, made in changes.items() if made))
    return replicas, observed.with_drained(plan.drained, _format_timestamp(now))


def _replica_pods(observed: Observed, requests: Mapping[str, int], now: datetime) -> list[ReplicaPod]:
    return [
        *(ReplicaPod(pod.name, serves=False) for pod in observed.pending),
        *(
            ReplicaPod(pod.name, serves=True, requests=requests.get(pod.name), drained_seconds=_drained_for(pod, now))
            for pod in (*observed.serving, *observed.drained)
        ),
    ]


def _drained_for(pod: PodView, now: datetime) -> float | None:
    """Seconds; 0 where the clock was set back since."""
    if pod.drained_since is None:
        return None
    return max((now - datetime.fromisoformat(pod.drained_since)).total_seconds(), 0.0)


def _drain_annotation(pod: PodView, plan: ScaleDown, now: datetime) -> Annotations:
    """What is to change of it."""
    if (pod.name in plan.drained) == (pod.drained_since is not None):
        return {}
    return {labels.SCALE_DOWN: _format_timestamp(now) if pod.name in plan.drained else None}


def _deletion_cost(pod: str, plan: ScaleDown, requests: Mapping[str, int]) -> str:
    """Its requests; a pod that is not to end costs more than one that is, whether it reported or not."""
    if pod in plan.ending:
        return "0"
    return str(max(requests.get(pod, 0), 1 if plan.ending else 0))


def _format_timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
