"""How many replicas the traffic needs: demand / (utilization x what one replica carries), rounded up.

Demand is how many sequences the traffic wants to run at once. By Little's law: arrivals a second, times the tokens of
an answer (one where requests generate none), times the seconds of a token on a full replica. No queue is in it, so a
step in the traffic is seen within one window and not by the queue that it leaves later: what is planned to be spare
works that off. While one of the three is unknown, what runs and waits stands for the product.
"""

import math
from dataclasses import dataclass

from paternoster_contract.stats import Unreported
from paternoster_operator.autoscaling.loops.limits import startup_seconds
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replica_model import Capacity, ReplicaModel, replica_capacity
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.trend import forecast_growth
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas the traffic needs, and the numbers behind it."""

    replicas: int
    demand: float
    """Sequences at once."""
    capacity: Capacity
    """Capacity of one replica."""
    utilization: float
    """Share of that which is planned for."""

    @property
    def per_replica(self) -> float:
        """Sequences at once of one replica."""
        return self.capacity.sequences

    def ratio_at(self, replicas: int) -> float:
        """Demand over what that many replicas sustain."""
        return self.demand / (self.per_replica * max(replicas, 1))

    def explain(self, signals: Signals, replicas: int) -> str:
        """What demand consists of, over what the replicas sustain; those that do not serve yet are named."""
        of = f"{replicas} replica{'' if replicas == 1 else 's'}"
        of += f" ({signals.ready} serving) will sustain" if signals.ready < replicas else " sustain"
        share = f"{self.ratio_at(replicas):.0%} of the {self.per_replica * replicas:.0f} that {of}"
        blind = Unreported.REQUESTS in signals.unreported
        seen = ", from what runs, as the engines do not report requests" if blind else ""
        return f"demand {self.demand:.0f} sequences ({describe_requests(signals)}){seen} = {share}"

    @property
    def formula(self) -> str:
        return f"ceil({self.demand:.1f} / ({self.utilization:.2f} x {self.per_replica:.1f})) = {self.replicas}"


def describe_requests(signals: Signals) -> str:
    """Where requests are, without what is 0: ``2.1 requests/s, 80 running, 38 waiting, 5 refused in 30 s``."""
    counts = ((signals.running, "running"), (signals.waiting, "waiting"), (signals.held, "held"))
    parts = [f"{signals.arrival_rate:.1f} requests/s"] if signals.arrived else []
    parts += [f"{count} {where}" for count, where in counts if count]
    if signals.refused:
        parts.append(f"{signals.refused} refused in {signals.window_seconds:.0f} s")
    return ", ".join(parts) or "no request"


def replicas_needed(policy: ScalingPolicy, signals: Signals, models: Models, tuning: Tuning) -> Need:
    """At least one; tolerance, windows and limits come after."""
    assert policy.replicas is not None
    capacity = replica_capacity(policy, models.replica)
    per_replica = capacity.sequences
    ahead = startup_seconds(signals, tuning) + tuning.replica_period_seconds
    growth = forecast_growth(models.arrivals, ahead, signals.window_seconds, tuning)
    demand = estimate_demand(signals, models.replica, per_replica, growth=growth)
    utilization = policy.replicas.settings.target_utilization_percent / 100
    replicas = math.ceil(demand / (utilization * per_replica) - 1e-9)
    return Need(max(replicas, 1), demand, capacity, utilization)


def estimate_demand(signals: Signals, model: ReplicaModel, full: float, *, growth: float = 1.0) -> float:
    """Sequences at once on replicas that run ``full`` when full, each as slow as there.

    Their share of its places is their share of its work. ``growth`` is by how much the arrivals will have grown when a
    new replica could serve.
    """
    if signals.ready == 0 or signals.mean_running == 0 or signals.had_no_request:
        return signals.demand
    prior, pace, steps = model.tuning.prior_arrivals, model.step_seconds(full), model.steps_per_answer
    running = _running_when_full(signals, model, full)
    if pace is None or steps is None:
        return running + signals.queued
    arriving = signals.arrival_rate * steps * pace
    steady = (arriving * signals.arrived + running * prior) / (signals.arrived + prior)
    # Answers that have grown longer run before they end: what runs is a fact, their length of the past is none.
    return max(steady, signals.mean_running) * growth


def _running_when_full(signals: Signals, model: ReplicaModel, full: float) -> float:
    """What runs now, on full replicas: fewer of them are slower ones.

    Its pace is that of the replicas while they run anything. At that of the whole window, idle times in it, one request
    now and then would seem to have ended in no time, and to fill a replica.
    """
    busy = sum(load.busy_share for load in signals.replicas)
    now = model.step_seconds(signals.mean_running / busy) if busy else None
    then = model.step_seconds(full)
    return signals.mean_running if not now or not then else signals.mean_running * then / now
