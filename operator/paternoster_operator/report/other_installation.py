"""Another installation's name in a fleet's status, ``status.otherInstallation``. Pure.

An installation that watches a fleet which another one reconciles writes its name there, and writes it again every
:data:`RENEW_SECONDS`. By it the one that reconciles the fleet sees the other, without a request of its own.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

RENEW_SECONDS = 120.0
VOID_SECONDS = 300.0
"""A mark of this age is no longer valid. Two renewals and room for clocks that differ."""


def build_mark(name: str, now: str) -> dict[str, Any]:
    """Fields of the status that mark the fleet as watched by ``name`` at ``now``, an RFC 3339 time."""
    return {"otherInstallation": {"name": name, "seenTime": now}}


def mark_age(status: Mapping[str, Any], now: str) -> float | None:
    """Seconds from the mark until ``now``; None where there is none with a name and a time."""
    other = status.get("otherInstallation") or {}
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(other["seenTime"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None


def find_other_installation(status: Mapping[str, Any], now: str) -> str | None:
    """The installation that watches the fleet beside ``status.installation``; None where no valid mark says so."""
    age = mark_age(status, now)
    if age is None or abs(age) > VOID_SECONDS:
        return None
    name: str | None = status["otherInstallation"].get("name")
    return None if name == status.get("installation") else name
