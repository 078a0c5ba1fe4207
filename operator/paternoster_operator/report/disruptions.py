"""Events for replicas that something else than their Deployment ended: evicted, preempted, refused by a node. Pure."""

from collections.abc import Collection
from datetime import datetime

from paternoster_operator.cluster.port import Event
from paternoster_operator.observe import Observed
from paternoster_operator.pods.view import PodView

FAILED = "ReplicaFailed"
FRESH_SECONDS = 60.0
"""Age up to which an operator that has just started reports what ended before its first look."""


def find_disruptions(observed: Observed) -> dict[str, Event]:
    """The event for each pod that was ended so, by the pod's name."""
    return {pod.name: event for pod in observed.pods if (event := _event(pod)) is not None}


def _event(pod: PodView) -> Event | None:
    if pod.disruption is not None:
        said = f"{pod.disruption.reason}: {pod.disruption.message}".rstrip(": ")
        return Event("Warning", "ReplicaEvicted", f"{pod.name}: {said}")
    if pod.has_ended:
        said = f"{pod.ended_reason}: {pod.ended_message}".strip(": ") or f"phase {pod.phase}"
        return Event("Warning", FAILED, f"{pod.name}: {said}")
    return None


def is_fresh(pod: PodView, now: str) -> bool:
    """Whether it ended so recently that no earlier operator has reported it for certain."""
    since = pod.disruption.since if pod.disruption is not None else pod.created
    if not since:
        return True
    return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds() < FRESH_SECONDS


def new_disruptions(
    observed: Observed, reported: Collection[str] | None, now: str
) -> tuple[dict[str, Event], set[str]]:
    """Events that are due, and the names of all pods that need none any more. ``reported`` is None at a first look."""
    found = find_disruptions(observed)
    pods = {pod.name: pod for pod in observed.pods}
    known = {_words(name, event) for name, event in found.items() if name in (reported or ())}
    due = {}
    for name, event in found.items():
        # A node that refuses one pod refuses those that replace it, many a second, with the same words.
        again = event.reason == FAILED and _words(name, event) in known
        if not again and (is_fresh(pods[name], now) if reported is None else name not in reported):
            due[name] = event
            known.add(_words(name, event))
    return due, set(found)


def _words(name: str, event: Event) -> str:
    return event.message.removeprefix(name)
