"""Events about a pod, as kubelet and controllers record them (``events.k8s.io/v1``)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_NOTE = 1000
"""Characters of an event's note that are read: the field has at most 1024, and a condition repeats it."""
_LONGEST_TEXT = 8 * MAX_NOTE
"""Characters that are looked at for a note: events of an older API have any number."""
_CONTAINER = re.compile(r"spec\.(?:initContainers|containers)\{([^}]{1,253})\}")


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event, or a series of the same."""

    reason: str
    """Such as FailedMount or Pulling."""
    note: str
    container: str
    """Name of the container that it is about; empty where it is about the pod."""
    count: int
    """Number of occurrences."""
    last: str
    """Time of the last occurrence, in RFC 3339 with whole seconds."""


def read_events(documents: Iterable[Mapping[str, Any]]) -> tuple[PodEvent, ...]:
    """Parse events and sort them by their last occurrence, those of the same second by their creation."""
    events = [(_last_time(document), _first_time(document), _read_event(document)) for document in documents]
    return tuple(event for _, _, event in sorted(events, key=lambda event: event[:2]))


def _read_event(document: Mapping[str, Any]) -> PodEvent:
    path = _CONTAINER.fullmatch((document.get("regarding") or {}).get("fieldPath", ""))
    series = document.get("series") or {}
    return PodEvent(
        reason=document.get("reason", ""),
        note=" ".join(document.get("note", "")[:_LONGEST_TEXT].split())[:MAX_NOTE],
        container="" if path is None else path[1],
        count=series.get("count") or document.get("deprecatedCount") or 1,
        last=_last_time(document),
    )


def _last_time(document: Mapping[str, Any]) -> str:
    series = document.get("series") or {}
    return _truncate_time(
        series.get("lastObservedTime")
        or document.get("deprecatedLastTimestamp")
        or document.get("eventTime")
        or document.get("metadata", {}).get("creationTimestamp")
    )


def _first_time(document: Mapping[str, Any]) -> str:
    return str(document.get("metadata", {}).get("creationTimestamp") or "")


def _truncate_time(time: str | None) -> str:
    """Truncate to seconds: recorders write microseconds or none, and only equal formats can be compared as text."""
    return f"{time[:19]}Z" if time else ""
