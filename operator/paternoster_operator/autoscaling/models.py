"""What the law learns of a fleet: one model of a replica, and where arrivals are going."""

from dataclasses import dataclass, field, replace
from typing import Self

from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.trend import Arrivals, record_arrivals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning


@dataclass(frozen=True, slots=True)
class Models:
    """Times are the caller's clock."""

    replica: ReplicaModel = field(default_factory=ReplicaModel)
    arrivals: Arrivals = ()
    """The rate of the last minutes."""
    learnt: float | None = None
    """When signals were learnt from last."""

    @classmethod
    def empty(cls, tuning: Tuning = DEFAULT_TUNING) -> Self:
        """Before the first signals."""
        return cls(ReplicaModel.empty(tuning))

    def learn(self, signals: Signals, now: float) -> Self:
        """Learn from signals, at most once a period: a window that is read twice is no second observation."""
        tuning = self.replica.tuning
        elapsed = tuning.engine_period_seconds if self.learnt is None else now - self.learnt
        if not signals.fresh or 0 <= elapsed < tuning.engine_period_seconds:
            return self
        return replace(
            self,
            learnt=now,
            replica=self.replica.observe(signals, elapsed),
            arrivals=record_arrivals(self.arrivals, now, signals.arrival_rate, tuning),
        )
