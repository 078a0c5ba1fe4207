"""What the law learns of a fleet: one model of a replica, and where arrivals are going."""

import math
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
    recent: ReplicaModel = field(default_factory=ReplicaModel)
    """Model of a replica in the last minute."""
    lighter_since: float = -math.inf
    """When heavier requests were forgotten last."""
    arrivals: Arrivals = ()
    """The rate of the last minutes."""
    learnt: float | None = None
    """When signals were learnt from last."""

    @classmethod
    def empty(cls, tuning: Tuning = DEFAULT_TUNING) -> Self:
        """Before the first signals."""
        recent = replace(tuning, half_life_seconds=tuning.recent_half_life_seconds)
        return cls(ReplicaModel.empty(tuning), ReplicaModel.empty(recent))

    def learn_signals(self, signals: Signals, now: float) -> Self:
        """Learn from signals, at most once a period: a window that is read twice is no second observation.

        Where the requests of the last minute are much lighter than those remembered, only they are remembered.
        """
        tuning = self.replica.tuning
        elapsed = tuning.engine_period_seconds if self.learnt is None else now - self.learnt
        if not signals.fresh or 0 <= elapsed < tuning.engine_period_seconds:
            return self
        replica, recent = self.replica.observe(signals, elapsed), self.recent.observe(signals, elapsed)
        # What a step costs is the machine's, and remembered; what is in one is the traffic's.
        recent = replace(recent, steps=replace(recent.steps, cost=replica.steps.cost))
        if lighter := recent.has_lighter_requests(replica):
            replica = replace(recent, tuning=tuning, steps=replace(recent.steps, tuning=tuning))
        return replace(
            self,
            learnt=now,
            replica=replica,
            recent=recent,
            lighter_since=now if lighter else self.lighter_since,
            arrivals=record_arrivals(self.arrivals, now, signals, tuning),
        )
