"""The part of a spec that the law reads."""

from dataclasses import dataclass, replace
from datetime import datetime

from paternoster_operator.api.replica_bounds import affordable_replicas, bounds_at
from paternoster_operator.api.types.objective import Slo
from paternoster_operator.api.v1alpha1 import (
    AutoscalingMode,
    Concurrency,
    ConcurrencyMode,
    ConcurrencyObjective,
    LLMDeploymentSpec,
    ScaleDown,
    ScaleUp,
)
from paternoster_operator.autoscaling.decision import Reason
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """The replica loop's settings."""

    mode: AutoscalingMode
    minimum: int
    maximum: int
    target_utilization: float
    tolerance: float
    scale_up: ScaleUp
    scale_down: ScaleDown
    budget: int | None
    """Most replicas that the GPU budget pays for; None without a budget."""
    idle_seconds: float | None = None
    """Time without demand after which no replica is wanted; None where the fewest allowed now are more than none."""
    schedules: tuple[str, ...] = ()
    """Names of the schedules that ``minimum`` and ``maximum`` come from."""

    @property
    def lowest(self) -> int:
        return min(self.minimum, self.highest)

    @property
    def highest(self) -> int:
        return self.maximum if self.budget is None else min(self.maximum, self.budget)

    @property
    def highest_reason(self) -> Reason:
        """What :attr:`highest` comes from."""
        return Reason.GPU_BUDGET if self.budget is not None and self.budget < self.maximum else Reason.MAX_REPLICAS


@dataclass(frozen=True, slots=True)
class CapPolicy:
    """The cap loop's settings."""

    mode: ConcurrencyMode
    objective: ConcurrencyObjective
    minimum: int
    maximum: int
    initial: int
    held: int | None
    """The cap that is kept, whatever is advised; None where the loop steers, and where a pause keeps what there is."""
    preemption_target: float
    window_seconds: float
    cooldown_seconds: float
    increase_step: int
    decrease: float
    kv_high_watermark: float
    min_finished: int


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """The token budget loop's settings."""

    mode: ConcurrencyMode
    minimum: int

    def lowest_budget(self, capacity: int) -> int:
        """Fewest tokens of a step, of engines whose steps hold at most ``capacity``."""
        return min(self.minimum, capacity)


@dataclass(frozen=True, slots=True)
class SloPolicy:
    """Latencies to keep at the 95th percentile, in seconds; None where the user names none."""

    ttft: float | None = None
    """Time to first token."""
    itl: float | None = None
    """Inter-token latency."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """The part of a manifest that the law reads, in seconds and shares."""

    fixed_replicas: int
    """Replicas where the replica loop does not act."""
    replicas: ReplicaPolicy | None
    cap: CapPolicy
    budget: BudgetPolicy
    slo: SloPolicy | None = None

    @property
    def start_replicas(self) -> int:
        """Replicas to begin with where nothing runs."""
        return self.fixed_replicas if self.replicas is None else self.replicas.lowest

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, at: datetime | None = None) -> "ScalingPolicy":
        """Percent and per thousand become shares, milliseconds seconds.

        ``at`` is the moment whose schedules hold, with its time zone; without it the spec's own bounds do. What is
        paused is advised only.
        """
        auto = spec.autoscaling
        replicas = None
        if auto is not None and auto.mode is not AutoscalingMode.EXTERNAL:
            bounds = bounds_at(auto, at)
            to_zero = auto.scale_to_zero.enabled and bounds.minimum == 0
            replicas = ReplicaPolicy(
                mode=AutoscalingMode.ADVISORY if spec.paused else auto.mode,
                minimum=bounds.minimum,
                maximum=bounds.maximum,
                target_utilization=auto.target_utilization_percent / 100,
                tolerance=auto.tolerance_percent / 100,
                scale_up=auto.scale_up,
                scale_down=auto.scale_down,
                budget=affordable_replicas(spec),
                idle_seconds=auto.scale_to_zero.idle_seconds if to_zero else None,
                schedules=bounds.schedules,
            )
        fixed = spec.replicas if spec.replicas is not None else auto.min_replicas if auto is not None else 1
        cap = _cap_policy(spec.concurrency, spec.engine.max_num_seqs)
        budget = _token_budget(spec.concurrency)
        if spec.paused and cap.mode is ConcurrencyMode.AUTO:
            cap = replace(cap, mode=ConcurrencyMode.ADVISORY)
        if spec.paused and budget.mode is ConcurrencyMode.AUTO:
            budget = replace(budget, mode=ConcurrencyMode.ADVISORY)
        return cls(fixed_replicas=fixed, replicas=replicas, cap=cap, budget=budget, slo=_slo_policy(spec.slo))


def _cap_policy(concurrency: Concurrency, capacity: int) -> CapPolicy:
    maximum = concurrency.max if concurrency.max is not None else capacity
    initial = concurrency.initial if concurrency.initial is not None else maximum
    mode = concurrency.mode or ConcurrencyMode.ADVISORY
    return CapPolicy(
        mode=mode,
        objective=concurrency.objective,
        minimum=concurrency.min,
        maximum=maximum,
        initial=initial,
        held=None if mode is ConcurrencyMode.AUTO else initial,
        preemption_target=concurrency.preemption_target_per_thousand / 1000,
        window_seconds=concurrency.window_seconds,
        cooldown_seconds=concurrency.cooldown_seconds,
        increase_step=concurrency.increase_step,
        decrease=concurrency.decrease_percent / 100,
        kv_high_watermark=concurrency.kv_high_watermark_percent / 100,
        min_finished=concurrency.min_finished_requests,
    )


def _token_budget(concurrency: Concurrency) -> BudgetPolicy:
    budget = concurrency.token_budget
    minimum = budget.min if budget.min is not None else max(DEFAULT_TUNING.min_token_budget, concurrency.min)
    return BudgetPolicy(mode=budget.mode or concurrency.mode or ConcurrencyMode.AUTO, minimum=minimum)


def _slo_policy(slo: Slo) -> SloPolicy | None:
    if slo.ttft_p95_milliseconds is None and slo.itl_p95_milliseconds is None:
        return None
    return SloPolicy(ttft=_to_seconds(slo.ttft_p95_milliseconds), itl=_to_seconds(slo.itl_p95_milliseconds))


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
