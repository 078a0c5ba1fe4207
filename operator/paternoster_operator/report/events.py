"""Events: of the scaling law's decisions, another engine in the manifest, and replicas that were ended. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from paternoster_operator.autoscaling.decision import QUEUE_WAIT, REPLICAS, LoopDecision, Reason
from paternoster_operator.cluster.port import Event
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.lora_adapters import LOADING

_BY_ACTION = {
    (REPLICAS, "Up"): "ScaledUp",
    (REPLICAS, "Down"): "ScaledDown",
    (QUEUE_WAIT, "Up"): "QueueBounded",
    (QUEUE_WAIT, "Down"): "QueueUnbounded",
}
"""The others are named after their loop: ``TokenBudgetRaised``."""
_BY_REASON = {Reason.SCALE_TO_ZERO_IDLE: "ScaledToZero", Reason.ACTIVATED_BY_REQUEST: "Activated"}
FAILED = "ReplicaFailed"
FRESH_SECONDS = 60.0
"""Age up to which an operator reports disruptions from before its own start."""


def engine_events(status: Mapping[str, Any], previous: Mapping[str, Any]) -> list[Event]:
    """One where the status names another engine than the one before."""
    now, before = (each.get("engine", {}).get("type") for each in (status, previous))
    if before is None or now in (None, before):
        return []
    change = f"engine.runtime.type {before}->{now}: replicas of {before} serve until those of {now} are ready"
    return [Event("Normal", "EngineChanged", change)]


def lora_events(status: Mapping[str, Any], previous: Mapping[str, Any]) -> list[Event]:
    """Events of adapters that came, failed or went since the ``previous`` status."""
    now, before = ({each["name"]: each for each in one.get("adapters", ())} for one in (status, previous))
    events = []
    for name, adapter in now.items():
        old = before.get(name, {})
        reason, message = adapter.get("reason"), f"{name}: {adapter.get('message', '')}"
        if reason not in (None, LOADING) and (reason, adapter["message"]) != (old.get("reason"), old.get("message")):
            events.append(Event("Warning", f"Adapter{reason}", message))
        elif reason is None and (name not in before or old.get("reason") is not None):
            events.append(Event("Normal", "AdapterLoaded", f"{name}: on {adapter['replicas']} replicas"))
    return [*events, *(Event("Normal", "AdapterRemoved", name) for name in before if name not in now)]


def decision_events(decisions: Sequence[LoopDecision]) -> list[Event]:
    """Events of decisions that change something, or would."""
    return [decision_event(decision) for decision in decisions if decision.action != "Hold"]


def decision_event(decision: LoopDecision) -> Event:
    """``decision`` changes something, or would."""
    limits = [reason.value for reason in decision.limited_by if reason is not Reason.AT_FLOOR]
    message = decision.message if decision.applied else f"advisory, not applied: {decision.message}"
    limited = f" (limited by {', '.join(limits)})" if limits else ""
    moved = f"{decision.loop}{'Raised' if decision.action == 'Up' else 'Lowered'}"
    named = _BY_REASON.get(decision.reason) or _BY_ACTION.get((decision.loop, decision.action), moved)
    return Event("Normal", named, message + limited)


def find_disruptions(observed: Observed) -> dict[str, Event]:
    """Return the event of each such pod, by the pod's name."""
    return {pod.name: event for pod in observed.pods if (event := _disruption_event(pod)) is not None}


def _disruption_event(pod: PodView) -> Event | None:
    if pod.disruption is not None:
        text = f"{pod.disruption.reason}: {pod.disruption.message}".rstrip(": ")
        return Event("Warning", "ReplicaEvicted", f"{pod.name}: {text}")
    if pod.has_ended:
        text = f"{pod.ended_reason}: {pod.ended_message}".strip(": ") or f"phase {pod.phase}"
        return Event("Warning", FAILED, f"{pod.name}: {text}")
    return None


def is_fresh(pod: PodView, now: str) -> bool:
    """Whether it ended so recently that an earlier operator may not have reported it."""
    since = pod.disruption.since if pod.disruption is not None else pod.created
    if not since:
        return True
    return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds() < FRESH_SECONDS


def new_disruptions(
    observed: Observed, reported: Collection[str] | None, now: str
) -> tuple[dict[str, Event], set[str]]:
    """Return the events to record, and the names of all disrupted pods. ``reported``: the latter of the last call."""
    found = find_disruptions(observed)
    pods = {pod.name: pod for pod in observed.pods}
    reported_causes = {_without_name(name, event) for name, event in found.items() if name in (reported or ())}
    due = {}
    for name, event in found.items():
        # A node that refuses a pod also refuses its replacements, many a second, with the same message.
        again = event.reason == FAILED and _without_name(name, event) in reported_causes
        if not again and (is_fresh(pods[name], now) if reported is None else name not in reported):
            due[name] = event
            reported_causes.add(_without_name(name, event))
    return due, set(found)


def _without_name(name: str, event: Event) -> str:
    return event.message.removeprefix(name)
