"""The events of the scaling law's decisions, and of another engine in the manifest. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_operator.autoscaling.decision import QUEUE_WAIT, REPLICAS, LoopDecision, Reason
from paternoster_operator.cluster.port import Event

_BY_ACTION = {
    (REPLICAS, "Up"): "ScaledUp",
    (REPLICAS, "Down"): "ScaledDown",
    (QUEUE_WAIT, "Up"): "QueueBounded",
    (QUEUE_WAIT, "Down"): "QueueUnbounded",
}
"""The others are named after their loop: ``TokenBudgetRaised``."""
_BY_REASON = {Reason.SCALE_TO_ZERO_IDLE: "ScaledToZero", Reason.ACTIVATED_BY_REQUEST: "Activated"}


def engine_events(status: Mapping[str, Any], previous: Mapping[str, Any]) -> list[Event]:
    """One where the status names another engine than the one before."""
    now, before = (each.get("engine", {}).get("type") for each in (status, previous))
    if before is None or now in (None, before):
        return []
    change = f"engine.runtime.type {before}->{now}: replicas of {before} serve until those of {now} are ready"
    return [Event("Normal", "EngineChanged", change)]


def decision_events(decisions: Sequence[LoopDecision]) -> list[Event]:
    """Of those that change something, or would."""
    return [decision_event(decision) for decision in decisions if decision.action != "Hold"]


def decision_event(decision: LoopDecision) -> Event:
    """``decision`` changes something, or would."""
    limits = [reason.value for reason in decision.limited_by if reason is not Reason.AT_FLOOR]
    message = decision.message if decision.applied else f"advisory, not applied: {decision.message}"
    limited = f" (limited by {', '.join(limits)})" if limits else ""
    moved = f"{decision.loop}{'Raised' if decision.action == 'Up' else 'Lowered'}"
    named = _BY_REASON.get(decision.reason) or _BY_ACTION.get((decision.loop, decision.action), moved)
    return Event("Normal", named, message + limited)
