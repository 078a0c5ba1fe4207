"""The formula of the outer loop: replicas = demand / (utilization x what one replica carries), rounded up."""

import math
from dataclasses import dataclass

from paternoster_operator.autoscaling.capacity import Capacity, replica_capacity
from paternoster_operator.autoscaling.decision import LawState, is_recent
from paternoster_operator.autoscaling.demand import Demand, estimate_demand
from paternoster_operator.autoscaling.limits import PERIOD_SECONDS, is_ordered, startup_seconds
from paternoster_operator.autoscaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.trend import growth

SAFETY = 1.0
"""Spare sequences in units of the square root of demand (square-root staffing, Halfin and Whitt 1981): that is how
much independent arrivals vary, so a large fleet may run fuller than a small one."""


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas the traffic needs, and the numbers that say so."""

    replicas: int
    demand: Demand
    capacity: Capacity
    """Of one replica."""
    utilization: float
    """Share of that which is planned for."""

    @property
    def per_replica(self) -> float:
        """Sequences at once of one replica."""
        return self.capacity.sequences

    @property
    def exact(self) -> float:
        """Replicas before rounding."""
        return self.demand.sequences / (self.utilization * self.per_replica)

    def ratio(self, replicas: int) -> float:
        """Demand over what so many replicas carry."""
        return self.demand.sequences / (self.per_replica * max(replicas, 1))

    def compared(self, replicas: int) -> str:
        """In words, with the numbers."""
        demand, capacity = self.demand.sequences, self.per_replica * replicas
        return f"demand {demand:.0f} / capacity {capacity:.0f} = {self.ratio(replicas):.0%}"

    @property
    def formula(self) -> str:
        return (
            f"ceil({self.demand.sequences:.1f} / ({self.utilization:.2f} x {self.per_replica:.1f})) = {self.replicas}"
        )


def replicas_needed(policy: ScalingPolicy, loop: ReplicaPolicy, signals: Signals, state: LawState, now: float) -> Need:
    """At least one; tolerance, windows and limits come after."""
    capacity = replica_capacity(policy, state.model)
    startup = startup_seconds(signals)
    ordered = is_ordered(signals, state, now)
    settled = not is_recent(now, state.cap_changed, policy.cap.cooldown_seconds)
    if signals.queued and settled and not ordered and state.cap < capacity.sequences:
        # The cap has done what it can and a queue is left: then the cap is what a replica carries.
        capacity = Capacity(state.cap, "live cap")
    per_replica = capacity.sequences
    rise = growth(state.arrivals, ahead=startup + PERIOD_SECONDS)
    demand = estimate_demand(signals, state.model, per_replica, growth=rise, ordered=ordered)
    root = math.sqrt(demand.sequences)
    utilization = min(loop.target_utilization, root / (root + SAFETY)) if root > 0 else loop.target_utilization
    replicas = math.ceil(demand.sequences / (utilization * per_replica) - 1e-9)
    return Need(max(replicas, 1), demand, capacity, utilization)
