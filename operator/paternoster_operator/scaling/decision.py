"""What the law says, and what it remembers between two looks."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Loop = Literal["Replicas", "Concurrency"]
Action = Literal["Up", "Down", "Hold"]


class Reason(StrEnum):
    """Why; a fixed set, so that it can label a metric."""

    DEMAND_ABOVE_TARGET = "DemandAboveTarget"
    DEMAND_BELOW_TARGET = "DemandBelowTarget"
    WITHIN_TOLERANCE = "WithinTolerance"
    STABILIZING = "Stabilizing"
    STEP_LIMITED = "StepLimited"
    CONSOLIDATION_REFUSED = "ConsolidationRefused"
    PENDING_REPLICAS = "PendingReplicas"
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    GPU_BUDGET = "GPUBudget"
    METRICS_STALE = "MetricsStale"
    INSUFFICIENT_DATA = "InsufficientData"
    PREEMPTION_ABOVE_TARGET = "PreemptionAboveTarget"
    HEADROOM_AVAILABLE = "HeadroomAvailable"
    KV_HIGH_WATERMARK = "KVHighWatermark"
    AT_FLOOR = "AtFloor"
    AT_CAPACITY = "AtCapacity"


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """One loop's word."""

    loop: Loop
    current: int
    target: int
    """What to have from now on; equals ``current`` when nothing is to change."""
    recommended: int
    """What the formula gave before limits."""
    reason: Reason
    message: str
    limited_by: tuple[Reason, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)
    applied: bool = True
    """False in advisory mode: the target is what would have been."""

    @property
    def action(self) -> Action:
        if self.target == self.current:
            return "Hold"
        return "Up" if self.target > self.current else "Down"

    def document(self) -> dict[str, Any]:
        """As JSON, with the names of the status field ``decisions``."""
        return {
            "loop": self.loop,
            "action": self.action,
            "from": self.current,
            "to": self.target,
            "recommended": self.recommended,
            "reason": self.reason.value,
            "message": self.message,
            "limitedBy": [reason.value for reason in self.limited_by],
            "inputs": dict(self.inputs),
            "applied": self.applied and self.action != "Hold",
        }


@dataclass(frozen=True, slots=True)
class LawState:
    """The law's memory. Times are the caller's clock."""

    replicas: int
    """Target number of replicas."""
    cap: int
    """Target live cap of every engine."""
    since: float
    """When this memory began: before it, nothing is known."""
    replicas_due: float = 0.0
    cap_due: float = 0.0
    cap_changed: float | None = None
    cap_cut: float | None = None
    wants_replica: bool = False
    """The cap is at its floor and preemptions are still too many: only another replica can help."""
    recommendations: tuple[tuple[float, int], ...] = ()
    """(time, replicas) that the formula gave, as far back as the longest stabilization window."""
    changes: tuple[tuple[float, int], ...] = ()
    """(time, difference) of replica changes, as far back as the longest period."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Both loops' words and the memory for the next look; a loop that was not due, or is off, is None."""

    replicas: LoopDecision | None
    concurrency: LoopDecision | None
    state: LawState
