"""The decisions that are recorded: changes, and the first of those that hold for one reason. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_operator.autoscaling.decision import Decision, LoopDecision

MAX_DECISIONS = 10
"""Most records: each write of a status is a write to etcd."""


class History:
    """The last decisions, newest first, as the status has them."""

    def __init__(self, records: Sequence[Mapping[str, Any]] = ()) -> None:
        self.records: list[Mapping[str, Any]] = list(records)[:MAX_DECISIONS]
        self._last: dict[str, Mapping[str, Any]] = {record["loop"]: record for record in reversed(self.records)}
        """The newest of each loop, which may have left the list."""

    def add(self, decision: Decision, time: str) -> tuple[LoopDecision, ...]:
        """Record a decision made at ``time`` (RFC 3339); returns the parts that are new."""
        recorded = tuple(made for made in decision.values() if is_new(made, self._last.get(made.loop)))
        for made in recorded:
            self._last[made.loop] = {"time": time, **made.to_document()}
            self.records.insert(0, self._last[made.loop])
        del self.records[MAX_DECISIONS:]
        return recorded


def is_new(made: LoopDecision, last: Mapping[str, Any] | None) -> bool:
    """A change always is; holding when its reason begins, and advice when it turns, goes further or has another reason.

    So advice that follows the traffic back and forth is not recorded at every look.
    """
    if last is None or (made.applied and made.action != "Hold"):
        return True
    if made.action == "Hold":
        return bool(last["action"] != "Hold" or last["reason"] != made.reason.value)
    if (made.action, made.reason.value, False) != (last["action"], last["reason"], last["applied"]):
        return True
    return bool(made.target > last["to"] if made.action == "Up" else made.target < last["to"])
