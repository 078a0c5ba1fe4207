"""Events for replicas that were evicted, preempted, or refused by a node. Pure."""

from collections.abc import Collection
from datetime import datetime

from paternoster_operator.cluster.port import Event
from paternoster_operator.observe import Observed
from paternoster_operator.pods.view import PodView

FAILED = "ReplicaFailed"
FRESH_SECONDS = 60.0
"""Age up to which an operator reports disruptions from before its own start."""


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
