"""What the law decides: a mapping from each loop's name to its decision, with reason, inputs and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

REPLICAS: Final = "Replicas"
LIVE_CAP: Final = "LiveCap"
TOKEN_BUDGET: Final = "TokenBudget"
QUEUE_WAIT: Final = "QueueWait"
LOOP_NAMES: Final = (TOKEN_BUDGET, LIVE_CAP, REPLICAS, QUEUE_WAIT)
"""In the order of evaluation."""

Action = Literal["Up", "Down", "Hold"]


class Reason(StrEnum):
    """Why; a fixed set, so that it can label a metric."""

    DEMAND_ABOVE_TARGET = "DemandAboveTarget"
    DEMAND_BELOW_TARGET = "DemandBelowTarget"
    WITHIN_TOLERANCE = "WithinTolerance"
    STABILIZING = "Stabilizing"
    STEP_LIMITED = "StepLimited"
    PENDING_REPLICAS = "PendingReplicas"
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    GPU_BUDGET = "GPUBudget"
    METRICS_STALE = "MetricsStale"
    NOT_REPORTED = "NotReported"
    INSUFFICIENT_DATA = "InsufficientData"
    PREEMPTION_ABOVE_TARGET = "PreemptionAboveTarget"
    LATENCY_ABOVE_TARGET = "LatencyAboveTarget"
    HEADROOM_AVAILABLE = "HeadroomAvailable"
    KV_HIGH_WATERMARK = "KVHighWatermark"
    AT_FLOOR = "AtFloor"
    AT_CAPACITY = "AtCapacity"
    BOUNDS_CHANGED = "BoundsChanged"
    SCALE_TO_ZERO_IDLE = "ScaleToZeroIdle"
    ACTIVATED_BY_REQUEST = "ActivatedByRequest"


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """What one loop wants, and why."""

    loop: str
    """Name of the loop."""
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
    utilization: float | None = None
    """Replicas: demand over what the present replicas sustain; None where it was not computed."""
    formula: str = ""
    """How ``recommended`` came about, with its numbers: ``ceil(118 / (0.80 x 48)) = 4``."""
    otherwise: str = ""
    """What would have happened without a limit, or without the other loop; empty where it would have been the same."""

    @property
    def action(self) -> Action:
        if self.target == self.current:
            return "Hold"
        return "Up" if self.target > self.current else "Down"

    @property
    def preempts_at_floor(self) -> bool:
        """Too many requests are preempted, and the loop may not go any lower."""
        return self.applied and self.reason is Reason.AT_FLOOR

    def to_document(self) -> dict[str, Any]:
        """Write the decision with the names of the status field ``decisions``."""
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
            "formula": self.formula,
            "otherwise": self.otherwise,
            "applied": self.applied and self.action != "Hold",
        }


class Decision(dict[str, LoopDecision]):
    """The decisions of one moment by the name of their loop, without the loops that were off or not due.

    ``targets`` has what every loop wants, also where it was not due.
    """

    def __init__(self, loops: Mapping[str, LoopDecision], targets: Mapping[str, int]) -> None:
        super().__init__(loops)
        self.targets = dict(targets)

    def merge_earlier(self, earlier: "Decision | None") -> "Decision":
        """This with the earlier decisions of loops that were not due now, in the loops' order."""
        latest = {**(earlier or {}), **self}
        return Decision({name: latest[name] for name in self.targets if name in latest}, self.targets)
