"""Status from what is: pure, so that the same look always gives the same words.

Conditions follow the Kubernetes API conventions and kstatus: ``Ready`` is always there; ``Reconciling`` and ``Stalled``
only while true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paternoster_operator.api.v1alpha1 import (
    AutoscalingMode,
    ConcurrencyMode,
    LLMDeployment,
    LLMDeploymentSpec,
)
from paternoster_operator.desired.ownership import selector
from paternoster_operator.economics import economics
from paternoster_operator.observe import Observed
from paternoster_operator.obstacle import find_obstacle
from paternoster_operator.scaling.decision import Decision, LawState, LoopDecision, Reason
from paternoster_operator.scaling.policy import ReplicaPolicy
from paternoster_operator.scaling.signals import Signals

LOAD_REFRESH_SECONDS = 60
LOAD_CHANGE = 0.1
"""Load numbers are written again when one moved by more than this share, or the last ones are old."""

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class _Condition:
    type: str
    status: Truth
    reason: str
    message: str = ""


_LIMITS = (Reason.MAX_REPLICAS, Reason.MIN_REPLICAS, Reason.GPU_BUDGET, Reason.STEP_LIMITED, Reason.PENDING_REPLICAS)
_CAP_STATES = {
    Reason.PREEMPTION_ABOVE_TARGET: ("False", "ReducingOnPreemption"),
    Reason.HEADROOM_AVAILABLE: ("False", "IncreasingHeadroom"),
    Reason.AT_FLOOR: ("False", "AtFloor"),
    Reason.AT_CAPACITY: ("True", "AtCapacity"),
}


def build_status(
    resource: LLMDeployment,
    observed: Observed,
    signals: Signals,
    decision: Decision,
    standing: Decision,
    now: str,
    *,
    age_of_load: float,
    endpoint: str,
    bounds: ReplicaPolicy | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    startup: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The whole status. ``now`` is an RFC 3339 time; ``age_of_load`` says how old the load in the last status is, in s.

    ``decision`` is this look's; ``standing`` has the last word of each loop, also where it was not due now. ``bounds``
    are the replica loop's where it is on, ``history`` its and the cap loop's records, newest first.
    """
    previous = resource.status
    state = decision.state
    conditions = _conditions(resource, observed, signals, standing, now)
    status: dict[str, Any] = {
        "observedGeneration": resource.metadata.generation,
        "conditions": _stamp(conditions, previous.get("conditions", []), resource.metadata.generation, now),
        "replicas": len(observed.pods) - len(observed.draining),
        "readyReplicas": len(observed.serving),
        "updatedReplicas": observed.deployment.updated if observed.deployment else 0,
        "pendingReplicas": len(observed.pending),
        "drainingReplicas": len(observed.draining),
        "desiredReplicas": state.replicas,
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(resource).items())),
        "endpoint": endpoint,
        "servedModel": resource.served_name,
        "concurrency": {
            "capacity": signals.engine_capacity,
            "target": state.cap,
            "currentMin": signals.lowest_cap,
            "currentMax": signals.highest_cap,
        },
        "load": _load(signals, previous.get("load", {}), now, age_of_load),
        "decisions": [dict(record) for record in history],
    }
    if bounds is not None:
        in_force = {"minReplicas": bounds.lowest, "maxReplicas": bounds.highest, "schedules": list(bounds.schedules)}
        status["bounds"] = in_force
    if startup is not None:
        status["startup"] = dict(startup)
    costs = economics(resource.spec, observed, status["load"])
    if costs is not None:
        status["economics"] = costs
    if decision.replicas is not None and decision.replicas.action != "Hold" and decision.replicas.applied:
        status["lastScaleTime"] = now
    elif "lastScaleTime" in previous:
        status["lastScaleTime"] = previous["lastScaleTime"]
    return status


def invalid_status(generation: int, previous: Mapping[str, Any], errors: list[str], now: str) -> dict[str, Any]:
    """Status of a resource whose spec cannot be used: what runs goes on, and the faults are named."""
    message = "; ".join(errors)
    conditions = [
        _Condition("Ready", "False", "InvalidSpec", message),
        _Condition("Stalled", "True", "InvalidSpec", message),
    ]
    return {
        **previous,
        "observedGeneration": generation,
        "conditions": _stamp(conditions, previous.get("conditions", []), generation, now),
    }


def _conditions(
    resource: LLMDeployment, observed: Observed, signals: Signals, decision: Decision, now: str
) -> list[_Condition]:
    spec, state = resource.spec, decision.state
    stalled = _stalled(spec, observed, state, now)
    reconciling = None if spec.paused else _reconciling(spec, observed, state)
    conditions = [_ready(observed, state, stalled, reconciling)]
    if reconciling is not None and stalled is None:
        conditions.append(reconciling)
    if stalled is not None:
        conditions.append(stalled)
    conditions.append(_metrics_fresh(signals))
    conditions.append(_scaling_active(spec, signals))
    limited = _limited(decision.replicas)
    if limited is not None:
        conditions.append(limited)
    conditions.append(_concurrency_stable(spec, decision.concurrency))
    return conditions


def _stalled(spec: LLMDeploymentSpec, observed: Observed, state: LawState, now: str) -> _Condition | None:
    obstacle = find_obstacle(observed, now)
    if obstacle is not None:
        return _Condition("Stalled", "True", obstacle.reason, obstacle.message)
    deployment = observed.deployment
    on_their_way = observed.pending or (deployment is not None and deployment.spec_replicas > 0)
    if spec.paused and state.replicas > 0 and not observed.serving and not on_their_way:
        # Or who waits for the fleet would wait until a time limit of their own.
        said = f"0 of {state.replicas} replicas serve, and none is started while spec.paused is true"
        return _Condition("Stalled", "True", "Paused", said)
    return None


def _ready(observed: Observed, state: LawState, stalled: _Condition | None, moving: _Condition | None) -> _Condition:
    serving = len(observed.serving)
    if serving > 0:
        return _Condition("Ready", "True", "MinimumReplicasAvailable", f"{serving} of {state.replicas} replicas serve")
    if state.replicas == 0:
        return _Condition("Ready", "True", "ScaledToZero", "no replica is wanted")
    if stalled is not None:
        return _Condition("Ready", "False", stalled.reason, stalled.message)
    reason = "Progressing" if moving is None else "ModelLoading" if observed.pending else moving.reason
    return _Condition("Ready", "Unknown", reason, f"0 of {state.replicas} replicas serve yet")


def _reconciling(spec: LLMDeploymentSpec, observed: Observed, state: LawState) -> _Condition | None:
    serving = len(observed.serving)
    deployment = observed.deployment
    # Before the rest: a rollout starts pods and drains others, too.
    if deployment is not None and deployment.rolling:
        return _Condition(
            "Reconciling", "True", "RollingOut", f"{deployment.updated} of {state.replicas} replicas updated"
        )
    if serving == 0 < state.replicas and spec.autoscaling is not None and spec.autoscaling.scale_to_zero.enabled:
        return _Condition("Reconciling", "True", "Activating", f"0 of {state.replicas} replicas serve")
    if deployment is not None and deployment.unseen:
        return _Condition("Reconciling", "True", "Progressing", "the last change of the Deployment is not yet acted on")
    if observed.draining:
        return _Condition("Reconciling", "True", "Draining", f"{len(observed.draining)} replicas finish their requests")
    if deployment is None or serving < state.replicas:
        return _Condition("Reconciling", "True", "ScalingUp", f"{serving} of {state.replicas} replicas serve")
    if not deployment.settled:
        return _Condition("Reconciling", "True", "ScalingUp", f"{deployment.available} of {state.replicas} available")
    return None


def _metrics_fresh(signals: Signals) -> _Condition:
    if signals.fresh:
        return _Condition("MetricsFresh", "True", "AllPodsReporting")
    if signals.ready == 0:
        return _Condition("MetricsFresh", "Unknown", "NoPodsReporting", "no replica serves")
    reason = "NoPodsReporting" if len(signals.stale_pods) == signals.ready else "SomePodsStale"
    return _Condition("MetricsFresh", "False", reason, f"no recent numbers from {', '.join(signals.stale_pods)}")


def _scaling_active(spec: LLMDeploymentSpec, signals: Signals) -> _Condition:
    if spec.paused:
        return _Condition("ScalingActive", "False", "Paused", "spec.paused is true")
    if spec.autoscaling is None:
        return _Condition("ScalingActive", "False", "Disabled", "spec.autoscaling is unset")
    if spec.autoscaling.mode is not AutoscalingMode.EXTERNAL and signals.ready > 0 and not signals.fresh:
        return _Condition("ScalingActive", "False", "MetricsStale", "replicas are held until numbers come again")
    return _Condition("ScalingActive", "True", spec.autoscaling.mode.value)


def _limited(decision: LoopDecision | None) -> _Condition | None:
    if decision is None:
        return None
    limits = [reason for reason in (*decision.limited_by, decision.reason) if reason in _LIMITS]
    if decision.recommended == decision.target or not limits:
        return _Condition("ScalingLimited", "False", "WithinBounds")
    return _Condition("ScalingLimited", "True", limits[0].value, decision.message)


def _concurrency_stable(spec: LLMDeploymentSpec, decision: LoopDecision | None) -> _Condition:
    if spec.concurrency.mode is ConcurrencyMode.FIXED or decision is None:
        return _Condition("ConcurrencyStable", "True", "Disabled", "spec.concurrency.mode is Fixed")
    status, reason = _CAP_STATES.get(decision.reason, ("True", "OnTarget"))
    return _Condition("ConcurrencyStable", "True" if status == "True" else "False", reason, decision.message)


def _stamp(
    conditions: list[_Condition], previous: list[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """Conditions on the wire; the time of the last change of status is kept while the status is."""
    before = {condition["type"]: condition for condition in previous}
    stamped = []
    for condition in conditions:
        old = before.get(condition.type)
        since = old["lastTransitionTime"] if old is not None and old["status"] == condition.status else now
        stamped.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }
        )
    return stamped


def _load(signals: Signals, previous: Mapping[str, Any], now: str, age: float) -> dict[str, Any]:
    load = {
        "runningRequests": signals.running,
        "waitingRequests": signals.waiting,
        "heldRequests": signals.held,
        "utilizationPercent": round(100 * signals.demand / signals.capacity) if signals.capacity else 0,
        "kvCachePercent": round(100 * signals.kv_usage),
        "preemptionsPerThousand": round(1000 * signals.preemption_rate),
        "generationTokensPerSecond": round(signals.generation_tokens_per_second),
        "fresh": signals.fresh,
    }
    if previous and age < LOAD_REFRESH_SECONDS and not _moved(load, previous):
        return dict(previous)
    return {**load, "sampleTime": now}


def _moved(load: Mapping[str, int], previous: Mapping[str, Any]) -> bool:
    return any(abs(value - previous.get(key, 0)) > LOAD_CHANGE * previous.get(key, 0) for key, value in load.items())
