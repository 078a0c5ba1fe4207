"""What the law reads of a manifest at one moment."""

from dataclasses import dataclass
from datetime import datetime

from paternoster_operator.api.replica_bounds import Bounds, bounds_at
from paternoster_operator.api.v1alpha1 import (
    Autoscaling,
    AutoscalingMode,
    Concurrency,
    ConcurrencyMode,
    LLMDeploymentSpec,
)
from paternoster_operator.autoscaling.decision import Reason


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """``spec.autoscaling`` with the bounds that hold now."""

    settings: Autoscaling
    mode: AutoscalingMode
    bounds: Bounds
    budget: int | None
    """Most replicas that the GPU budget pays for; None without a budget."""

    @property
    def lowest(self) -> int:
        return min(self.bounds.minimum, self.highest)

    @property
    def highest(self) -> int:
        return self.bounds.maximum if self.budget is None else min(self.bounds.maximum, self.budget)

    @property
    def highest_reason(self) -> Reason:
        """What :attr:`highest` comes from."""
        bounded = self.budget is not None and self.budget < self.bounds.maximum
        return Reason.GPU_BUDGET if bounded else Reason.MAX_REPLICAS

    @property
    def idle_seconds(self) -> float | None:
        """Time without demand after which no replica is wanted; None where the fewest allowed now are more."""
        to_zero = self.settings.scale_to_zero
        return to_zero.idle_seconds if to_zero.enabled and self.bounds.minimum == 0 else None


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """A manifest's settings, with what holds where one is unset; what is paused is advised only."""

    spec: LLMDeploymentSpec
    replicas: ReplicaPolicy | None
    """None where the replica loop does not act."""

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, at: datetime | None = None) -> "ScalingPolicy":
        """``at`` is the moment whose schedules hold, with its time zone; without it the spec's own bounds do."""
        auto = spec.autoscaling
        if auto is None or auto.mode is AutoscalingMode.EXTERNAL:
            return cls(spec, None)
        mode = AutoscalingMode.ADVISORY if spec.paused else auto.mode
        return cls(spec, ReplicaPolicy(auto, mode, bounds_at(auto, at), spec.affordable_replicas))

    @property
    def fixed_replicas(self) -> int:
        """Replicas where the replica loop does not act."""
        auto = self.spec.autoscaling
        fewest = 1 if auto is None else auto.min_replicas
        return fewest if self.spec.replicas is None else self.spec.replicas

    @property
    def start_replicas(self) -> int:
        """Replicas to begin with where nothing runs."""
        return self.fixed_replicas if self.replicas is None else self.replicas.lowest

    @property
    def concurrency(self) -> Concurrency:
        return self.spec.concurrency

    @property
    def steering_mode(self) -> ConcurrencyMode:
        """Mode of a limit that is to be steered."""
        return ConcurrencyMode.ADVISORY if self.spec.paused else ConcurrencyMode.AUTO

    @property
    def cap_mode(self) -> ConcurrencyMode:
        mode = self.concurrency.mode or ConcurrencyMode.ADVISORY
        return self.steering_mode if mode is ConcurrencyMode.AUTO else mode

    @property
    def highest_cap(self) -> int:
        return self.spec.engine.max_num_seqs if self.concurrency.max is None else self.concurrency.max

    @property
    def initial_cap(self) -> int:
        return self.highest_cap if self.concurrency.initial is None else self.concurrency.initial

    @property
    def held_cap(self) -> int | None:
        """The cap that is kept, whatever is advised; None where the loop steers, and where a pause keeps the last."""
        return None if self.concurrency.mode is ConcurrencyMode.AUTO else self.initial_cap

    @property
    def budget_mode(self) -> ConcurrencyMode:
        mode = self.concurrency.token_budget.mode or self.concurrency.mode or ConcurrencyMode.AUTO
        return self.steering_mode if mode is ConcurrencyMode.AUTO else mode

    @property
    def ttft_seconds(self) -> float | None:
        """Limit of the time to first token at the 95th percentile; None where the user names none."""
        limit = self.spec.slo.ttft_p95_milliseconds
        return None if limit is None else limit / 1000

    @property
    def itl_seconds(self) -> float | None:
        """Objective of the time between two tokens."""
        limit = self.spec.slo.itl_p95_milliseconds
        return None if limit is None else limit / 1000
