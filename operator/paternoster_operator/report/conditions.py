"""The conditions of a fleet: pure, so that equal inputs give equal messages.

They follow the Kubernetes API conventions and kstatus: ``Ready`` and ``UpToDate`` are always there; ``Reconciling``,
``Stalled``, ``Contested`` and ``RemovedFields`` only while true; ``GatewayCap`` only where the live cap is not held as
usual; ``AdaptersLoaded`` only where the fleet has adapters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import (
    AutoscalingMode,
    ConcurrencyMode,
    ConcurrencyObjective,
    LLMDeployment,
    LLMDeploymentSpec,
)
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, Decision, LoopDecision, Reason
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.desired.rollout import choose_strategy, find_blocking
from paternoster_operator.engines.adapter import Actuator
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed
from paternoster_operator.report.causes.cause import StallReason
from paternoster_operator.report.causes.stage import Stage, find_stage
from paternoster_operator.report.causes.stall_reason import find_stall_reason, waits_for_end
from paternoster_operator.report.gateway_cap import GatewayCap
from paternoster_operator.report.lora_adapters import lora_condition
from paternoster_operator.report.model_fetch import find_downloads
from paternoster_operator.report.other_installation import find_other_installation

Truth = Literal["True", "False", "Unknown"]
UP_TO_DATE = "UpToDate"


@dataclass(frozen=True, slots=True)
class Access:
    """Whether clients reach the fleet, and what keeps the operator from seeing to it."""

    names: tuple[str, ...] = ()
    """The served names that the fleet has; empty for none."""
    fault: StallReason | None = None
    """What the operator met when it acted."""
    knowing: int = 0
    """Gateways that send requests for these names to this fleet."""
    gateways: int | None = None
    """Gateways that answered; None in an installation without any."""
    waits_for_name: bool = False
    """``fault`` is that another fleet of the namespace has the name, which starts nothing less."""

    @property
    def waiting(self) -> bool:
        """Some gateway does not know the names yet."""
        return bool(self.names) and self.gateways is not None and self.knowing < self.gateways


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Truth
    reason: str
    message: str = ""


_LIMITS = (Reason.MAX_REPLICAS, Reason.MIN_REPLICAS, Reason.GPU_BUDGET, Reason.STEP_LIMITED, Reason.PENDING_REPLICAS)
_LOST = ("EngineRestarted", "ReplicaReplaced", "ReplicaNotReady")
"""Reasons of ``Reconciling`` while a fleet has fewer replicas than served before."""
_CAP_STATES: Mapping[Reason, tuple[Truth, str]] = {
    Reason.PREEMPTION_ABOVE_TARGET: ("False", "ReducingOnPreemption"),
    Reason.HEADROOM_AVAILABLE: ("False", "IncreasingHeadroom"),
    Reason.AT_FLOOR: ("False", "AtFloor"),
    Reason.AT_CAPACITY: ("True", "AtCapacity"),
    Reason.METRICS_STALE: ("Unknown", "MetricsStale"),
    Reason.NOT_REPORTED: ("Unknown", "NotReported"),
    Reason.INSUFFICIENT_DATA: ("Unknown", "InsufficientData"),
}


def find_conditions(
    resource: LLMDeployment,
    observed: Observed,
    signals: Signals,
    decision: Decision,
    now: str,
    access: Access,
    gateway_cap: GatewayCap | None = None,
    adapters: Sequence[Mapping[str, Any]] = (),
) -> list[Condition]:
    """All of them, in the order in which the status has them. ``now`` is an RFC 3339 time; ``adapters`` its own."""
    spec, replicas = resource.spec, decision.targets[REPLICAS]
    stalled = _stalled_condition(spec, observed, replicas, now, access)
    reconciling = _reconciling_condition(resource, observed, replicas, access)
    downloads = find_downloads(observed, spec)
    conditions = [_ready_condition(observed, replicas, stalled, reconciling, access, downloads)]
    conditions.append(_up_to_date_condition(spec, observed, replicas, access))
    if reconciling is not None and stalled is None:
        conditions.append(reconciling)
    if stalled is not None:
        conditions.append(stalled)
    contested = _contested_condition(resource, observed, now)
    if contested is not None:
        conditions.append(contested)
    if resource.removed_fields:
        conditions.append(Condition("RemovedFields", "True", "FieldsIgnored", "; ".join(resource.removed_fields)))
    if access.gateways is not None:
        conditions.append(_routed_condition(access))
    if adapters:
        loaded, reason, message = lora_condition(adapters)
        conditions.append(Condition("AdaptersLoaded", "True" if loaded else "False", reason, message))
    conditions.append(_metrics_fresh(signals))
    conditions.append(_scaling_active(spec, signals))
    limited = _limited_condition(decision.get(REPLICAS))
    if limited is not None:
        conditions.append(limited)
    conditions.append(_concurrency_stable(spec, decision.get(LIVE_CAP), signals))
    if gateway_cap is not None and (unusual := _gateway_cap(spec, gateway_cap, access)) is not None:
        conditions.append(unusual)
    return conditions


def _stalled_condition(
    spec: LLMDeploymentSpec, observed: Observed, replicas: int, now: str, access: Access
) -> Condition | None:
    stall = None if access.waits_for_name else access.fault
    stall = stall or _find_obstacle(spec, observed, replicas, now) or access.fault
    if stall is not None:
        return Condition("Stalled", "True", stall.reason, stall.message)
    deployment = observed.deployment
    on_their_way = observed.pending or (deployment is not None and deployment.spec_replicas > 0)
    if spec.paused and replicas > 0 and not observed.serving and not on_their_way:
        # Or who waits for the fleet would wait until a time limit of their own.
        message = f"0 of {replicas} replicas serve, and none is started while spec.paused is true"
        return Condition("Stalled", "True", "Paused", message)
    return None


def _find_obstacle(spec: LLMDeploymentSpec, observed: Observed, replicas: int, now: str) -> StallReason | None:
    """What pods and Deployment meet; not what a rollout gets round by ending the old replica first."""
    stall, blocking = find_stall_reason(observed, spec, now), find_blocking(observed)
    if stall is None or blocking is None:
        return stall
    if choose_strategy(spec, replicas, observed).max_surge == 0 and not spec.paused:
        return None
    advice = f"; {blocking.pod} holds {blocking.what}: with rollout.maxSurge: 0 it would end first"
    return StallReason(stall.reason, stall.message + advice)


def _first_stage(observed: Observed) -> Stage | None:
    """How far the first pod is that does not serve yet."""
    for pod in observed.starting:
        if (holder := waits_for_end(pod, observed)) is not None:
            return Stage(
                "Draining", f"{pod.name}: waits until {holder.name} has finished its requests and leaves its node"
            )
        stage = find_stage(pod)
        return Stage(stage.reason, f"{pod.name}: {stage.message}")
    return None


def _ready_condition(
    observed: Observed,
    replicas: int,
    stalled: Condition | None,
    moving: Condition | None,
    access: Access,
    downloads: str,
) -> Condition:
    serving = len(observed.serving)
    if not access.names and access.fault is not None:
        return Condition("Ready", "False", access.fault.reason, access.fault.message)
    if access.waiting and (serving > 0 or replicas == 0):
        return Condition("Ready", "Unknown", "WaitingForGateways", _count_gateways(access))
    if serving > 0:
        return Condition("Ready", "True", "MinimumReplicasAvailable", f"{serving} of {replicas} replicas serve")
    if replicas == 0:
        return Condition("Ready", "True", "ScaledToZero", "no replica is wanted")
    if stalled is not None:
        return Condition("Ready", "False", stalled.reason, stalled.message)
    message = f"0 of {replicas} replicas serve yet"
    if downloads:
        return Condition("Ready", "Unknown", "ModelDownloading", f"{message}; {downloads}")
    if (stage := _first_stage(observed)) is not None and moving is not None:
        return Condition("Ready", "Unknown", stage.reason, f"{message}; {stage.message}")
    return Condition("Ready", "Unknown", "Progressing" if moving is None else moving.reason, message)


def _up_to_date_condition(spec: LLMDeploymentSpec, observed: Observed, replicas: int, access: Access) -> Condition:
    """Whether all replicas were made from this spec and serve, and no older one is left: as ``kubectl rollout status``.

    ``Ready`` is true throughout a rollout, as the old replicas serve.
    """
    if access.fault is not None and not access.waits_for_name:
        return Condition(UP_TO_DATE, "False", access.fault.reason, access.fault.message)
    if spec.paused:
        return Condition(UP_TO_DATE, "Unknown", "Paused", "spec.paused is true: no edit reaches the replicas")
    deployment = observed.deployment
    if deployment is None:
        return Condition(UP_TO_DATE, "False", "Progressing", "there is no Deployment yet")
    if not deployment.settled or deployment.spec_replicas < replicas:
        updated = 0 if deployment.unseen else deployment.updated
        message = (
            f"{updated} of {replicas} replicas are of this spec, {deployment.available} of {deployment.replicas} serve"
        )
        return Condition(UP_TO_DATE, "False", "RollingOut", message)
    return Condition(UP_TO_DATE, "True", "AllReplicasUpdated", f"{deployment.updated} replicas are of this spec")


def _contested_condition(resource: LLMDeployment, observed: Observed, now: str) -> Condition | None:
    """Another installation watches the fleet as well, or other managers set fields of its children."""
    own, other = resource.status.get("installation", ""), find_other_installation(resource.status, now)
    if other is not None:
        message = (
            f"the installation {other} watches this LLMDeployment, too; {own} reconciles it, and {other} leaves it "
            "alone (status.installation). Let each watch namespaces of its own (watchNamespaces), or uninstall one"
        )
        return Condition("Contested", "True", "WatchedByAnotherInstallation", message)
    if observed.foreign_fields:
        until = "spec.paused is false" if resource.spec.paused else "it sends all children again (--resync-seconds)"
        message = (
            f"{'; '.join(observed.foreign_fields)}: the operator did not set these fields and leaves them until "
            f"{until}; what pods are to have is for spec.podTemplate"
        )
        return Condition("Contested", "True", "ForeignFields", message)
    return None


def _routed_condition(access: Access) -> Condition:
    """Whether every gateway has a route to the fleet, so that no client gets the error that there is no such model."""
    if not access.names:
        return Condition("Routed", "False", "NoServedName", "the fleet has no served name")
    if access.gateways == 0:
        return Condition("Routed", "Unknown", "NoGatewayAnswers", "no gateway reports its routes")
    if access.waiting:
        return Condition("Routed", "False", "WaitingForGateways", _count_gateways(access))
    return Condition("Routed", "True", "KnownToAllGateways", _count_gateways(access))


def _count_gateways(access: Access) -> str:
    return f"{access.knowing} of {access.gateways} gateways know {', '.join(access.names)}"


def _reconciling_condition(
    resource: LLMDeployment, observed: Observed, replicas: int, access: Access
) -> Condition | None:
    waiting = (
        Condition("Reconciling", "True", "WaitingForGateways", _count_gateways(access)) if access.waiting else None
    )
    return (None if resource.spec.paused else _moving_condition(resource, observed, replicas)) or waiting


def _moving_condition(resource: LLMDeployment, observed: Observed, replicas: int) -> Condition | None:
    spec = resource.spec
    downloads = find_downloads(observed, spec)
    serving = len(observed.serving)
    deployment = observed.deployment
    # Before the rest: a rollout starts pods and drains others, too.
    if deployment is not None and deployment.rolling:
        found = choose_strategy(spec, replicas, observed)
        by_turns = f"; old replicas end before new ones start: {found.why}" if found.why and not found.max_surge else ""
        message = f"{deployment.updated} of {replicas} replicas updated{by_turns}"
        return Condition("Reconciling", "True", "RollingOut", message)
    if silent := [pod for pod in observed.serving if pod.node_silent]:
        nodes = ", ".join(sorted({pod.node for pod in silent}))
        names = ", ".join(pod.name for pod in silent)
        message = f"node {nodes} reports nothing; requests go to {names} as long as gateways get answers there"
        return Condition("Reconciling", "True", "NodeNotReady", message)
    if serving == 0 < replicas and spec.autoscaling is not None and spec.autoscaling.scale_to_zero.enabled:
        return Condition("Reconciling", "True", "Activating", f"0 of {replicas} replicas serve")
    if deployment is not None and deployment.unseen:
        return Condition("Reconciling", "True", "Progressing", "the last change of the Deployment is not yet acted on")
    if observed.draining:
        return Condition("Reconciling", "True", "Draining", f"{len(observed.draining)} replicas finish their requests")
    if deployment is None or serving < replicas:
        reason, stage = _find_missing(resource.status, observed, replicas)
        message = "; ".join(filter(None, (f"{serving} of {replicas} replicas serve", stage, downloads)))
        return Condition("Reconciling", "True", reason, message)
    if not deployment.settled:
        return Condition("Reconciling", "True", "ScalingUp", f"{deployment.available} of {replicas} available")
    return None


def _find_missing(previous: Mapping[str, Any], observed: Observed, replicas: int) -> tuple[str, str]:
    """Why fewer replicas serve than are wanted, and how far they are: no more are wanted than served, or they are new.

    ``previous`` is the last status.
    """
    for pod in observed.pending:
        if pod.recovers:
            stage = find_stage(pod)
            return stage.reason, f"{pod.name}: {stage.message}"
    before = (find_condition(previous, "Reconciling") or {}).get("reason")
    was_whole = previous.get("readyReplicas", 0) >= replicas or before in _LOST
    if not was_whole or previous.get("desiredReplicas") != replicas:
        return "ScalingUp", ""
    if observed.pending and all(pod.has_served for pod in observed.pending):
        return "ReplicaNotReady", f"{', '.join(pod.name for pod in observed.pending)} served before"
    return "ReplicaReplaced", "another one takes the place of each that ended"


def _metrics_fresh(signals: Signals) -> Condition:
    if signals.fresh:
        lacking = f"not reported: {', '.join(signals.unreported)}" if signals.unreported else ""
        return Condition("MetricsFresh", "True", "AllPodsReporting", lacking)
    if signals.ready == 0:
        return Condition("MetricsFresh", "Unknown", "NoPodsReporting", "no replica serves")
    if signals.refused_reports:
        return Condition(
            "MetricsFresh", "False", "ReportsRefused", f"not believed: {'; '.join(signals.refused_reports)[:1000]}"
        )
    reason = "NoPodsReporting" if len(signals.stale_pods) == signals.ready else "SomePodsStale"
    message = "; ".join((f"no recent numbers from {', '.join(signals.stale_pods)}", *signals.failed_calls))
    return Condition("MetricsFresh", "False", reason, message[:1000])


def _scaling_active(spec: LLMDeploymentSpec, signals: Signals) -> Condition:
    if spec.paused:
        return Condition("ScalingActive", "False", "Paused", "spec.paused is true")
    if spec.autoscaling is None:
        return Condition("ScalingActive", "False", "Disabled", "spec.autoscaling is unset")
    if spec.autoscaling.mode is not AutoscalingMode.EXTERNAL and signals.ready > 0 and not signals.fresh:
        return Condition("ScalingActive", "False", "MetricsStale", "replicas are held until numbers come again")
    return Condition("ScalingActive", "True", spec.autoscaling.mode.value)


def _limited_condition(decision: LoopDecision | None) -> Condition | None:
    if decision is None:
        return None
    limits = [reason for reason in (*decision.limited_by, decision.reason) if reason in _LIMITS]
    if decision.recommended == decision.target or not limits:
        return Condition("ScalingLimited", "False", "WithinBounds")
    return Condition("ScalingLimited", "True", limits[0].value, decision.message)


def _concurrency_stable(spec: LLMDeploymentSpec, decision: LoopDecision | None, signals: Signals) -> Condition:
    mode = spec.concurrency.mode or ConcurrencyMode.ADVISORY
    if spec.paused:
        return Condition("ConcurrencyStable", "True", "Paused", "spec.paused is true")
    if mode is not ConcurrencyMode.AUTO or decision is None:
        # The same words throughout: what is only advised is no reason to write a status at every look.
        reason = "Advisory" if mode is ConcurrencyMode.ADVISORY else "Disabled"
        return Condition("ConcurrencyStable", "True", reason, f"spec.concurrency.mode is {mode}")
    status, reason = _CAP_STATES.get(decision.reason, ("True", "OnTarget"))
    counts_time = spec.concurrency.objective is not ConcurrencyObjective.PREEMPTION_RATE
    if status == "True" and counts_time and not signals.has_numbers(Unreported.STEPS, Unreported.RECOMPUTED_TOKENS):
        message = f"{decision.message}; the engines do not report what preemptions cost"
        return Condition("ConcurrencyStable", "Unknown", "NotReported", message)
    return Condition("ConcurrencyStable", status, reason, decision.message)


def _gateway_cap(spec: LLMDeploymentSpec, cap: GatewayCap, access: Access) -> Condition | None:
    """Whether gateways hold the live cap in place of engines; None where they do for every engine of the type."""
    if access.gateways is None:
        started = "no gateway holds the live cap, and each engine runs what it was started for"
        return Condition("GatewayCap", "False", "NoGateway", f"{started}: {cap.reason}")
    if KINDS[spec.engine.runtime.type].actuator is Actuator.GATEWAY:
        return None
    message = f"gateways send a replica at most {cap.max_in_flight} requests at a time: {cap.reason}"
    return Condition("GatewayCap", "True", "LimitsNotMovable", message)


def find_condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    """The condition of that type in a status; None where it has none."""
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == type_), None)


def stamp_conditions(
    conditions: Sequence[Condition], previous: list[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """Conditions on the wire; the time of the last change stays while the status does."""
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
