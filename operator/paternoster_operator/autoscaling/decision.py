"""What the law says, and what it remembers between two looks."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.trend import Arrivals

Loop = Literal["Replicas", "Concurrency", "TokenBudget"]
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
    utilization: float = 0.0
    """Replicas: sequences that the traffic wants over what those there are sustain; 0 where nothing was asked."""
    formula: str = ""
    """How ``recommended`` came about, with its numbers: ``ceil(118 / (0.80 x 48)) = 4``."""
    otherwise: str = ""
    """What would have happened without a limit, or without the other loop; empty where it would have been the same."""

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
            "formula": self.formula,
            "otherwise": self.otherwise,
            "applied": self.applied and self.action != "Hold",
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of the replica loop."""

    time: float
    wanted: int
    """Replicas that the formula gave."""
    filled: int = 0
    """Replicas that what ran would have filled, of those there were."""


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
    token_budget: int | None = None
    """Target token budget of every engine; None while none has one."""
    budget_due: float = 0.0
    budget_changed: float | None = None
    looked: float | None = None
    """Time of the last look whose numbers were learnt from."""
    model: ReplicaModel = field(default_factory=ReplicaModel)
    """What is known of a replica."""
    arrivals: Arrivals = ()
    """The rate of the last minutes."""
    ordered: float | None = None
    """When replicas were last added."""
    wants_replica: bool = False
    """The cap is at its floor and preemptions are still too many: only another replica can help."""
    evaluations: tuple[Evaluation, ...] = ()
    """Of the replica loop, oldest first, as far back as the longest window."""
    changes: tuple[tuple[float, int], ...] = ()
    """(time, difference) of replica changes, as far back as the longest period."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Each loop's word and the memory for the next look; a loop that was not due, or is off, is None."""

    replicas: LoopDecision | None
    concurrency: LoopDecision | None
    state: LawState
    token_budget: LoopDecision | None = None

    @property
    def words(self) -> tuple[LoopDecision, ...]:
        """Of those that were due."""
        loops = (self.token_budget, self.concurrency, self.replicas)
        return tuple(word for word in loops if word is not None)


def is_early(now: float, due: float, period: float) -> bool:
    """Whether a loop has to wait; not for longer than its period, so that a clock set back does not stop it."""
    return due - period <= now < due


def is_recent(now: float, then: float | None, seconds: float) -> bool:
    """Whether less than ``seconds`` have passed since ``then``; not where the clock was set back to before it."""
    return then is not None and 0 <= now - then < seconds
