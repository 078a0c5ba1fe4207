"""The decisions that are recorded: changes, and the first of those that hold for one reason. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_operator.autoscaling.decision import Decision, LoopDecision

MAX_DECISIONS = 10
"""Most records: each write of a status is a write to etcd."""


@dataclass(frozen=True, slots=True)
class History:
    """The last decisions, newest first, as the status has them."""

    records: tuple[Mapping[str, Any], ...] = ()
    last: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The newest of each loop, which may have left the list."""

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> "History":
        records = tuple(status.get("decisions", ()))[:MAX_DECISIONS]
        return cls(records, {record["loop"]: record for record in reversed(records)})

    def add(self, decision: Decision, time: str) -> tuple["History", tuple[LoopDecision, ...]]:
        """Return the history with a decision made at ``time`` (RFC 3339), and the parts that are new."""
        recorded = tuple(made for made in decision.values() if is_new(made, self.last.get(made.loop)))
        last = {made.loop: {"time": time, **made.to_document()} for made in recorded}
        records = (*reversed(last.values()), *self.records)[:MAX_DECISIONS]
        return History(records, {**self.last, **last}), recorded


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
