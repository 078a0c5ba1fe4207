"""How many sequences the traffic wants to run at once.

By Little's law: arrivals a second, times the tokens of an answer, times the seconds of a token on a full replica. None
of the three is a queue's length, so a step in the traffic is seen within one window and not by what it will have left.
Until they are known, what runs now stands for them. The queue counts by what it takes to work it off in time.
"""

from dataclasses import dataclass

from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import Signals

DRAIN_SECONDS = 60.0
"""Time in which a queue is to be worked off: more replicas than that takes would come when it is gone."""
CONFIDENCE = 10
"""Arrivals that weigh as much as what runs now: few requests say little about a rate."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Sequences at once, each as slow as on a full replica: their share of its places is their share of its work."""

    steady: float
    """For what arrives."""
    backlog: float
    """On top, to work the queue off."""

    @property
    def sequences(self) -> float:
        return self.steady + self.backlog


def drain_seconds(signals: Signals) -> float:
    """Time in which a queue is to be worked off."""
    return max(DRAIN_SECONDS, signals.startup_seconds or 0.0)


def estimate_demand(
    signals: Signals, model: ReplicaModel, full: float, *, growth: float = 1.0, ordered: bool = False
) -> Demand:
    """Demand on replicas that run ``full`` sequences when full.

    ``growth`` is by how much the arrivals will have grown when a new replica could serve; ``ordered`` says that the
    queue there is has its replicas, on their way or just come.
    """
    if signals.ready == 0 or signals.mean_running == 0:
        return Demand(signals.demand, 0.0)
    pace, tokens = model.pace(full), model.tokens_per_answer
    running = _running_when_full(signals, model, full)
    if pace is None or tokens is None:
        # More cannot be wanted than is there, as far as is known.
        return Demand(running, 0.0 if ordered else _backlog(signals, running))
    arriving = signals.arrival_rate * tokens * pace
    steady = (arriving * signals.arrived + running * CONFIDENCE) / (signals.arrived + CONFIDENCE)
    # Answers that have grown longer run before they end: what runs is a fact, their length of the past is none.
    steady = max(steady, signals.mean_running)
    return Demand(steady * growth, 0.0 if ordered else _backlog(signals, steady))


def _running_when_full(signals: Signals, model: ReplicaModel, full: float) -> float:
    """What runs now, on full replicas: fewer of them are slower ones."""
    now = model.pace(signals.mean_running / max(len(signals.replicas), 1))
    then = model.pace(full)
    return signals.mean_running if not now or not then else signals.mean_running * then / now


def _backlog(signals: Signals, steady: float) -> float:
    """Sequences on top of the steady ones that work the queue off in time."""
    service = steady * signals.flow_seconds / signals.arrived if signals.arrived else float("inf")
    # A queue never has to run at once unless its requests take longer than it may last.
    return signals.queued * min(service / drain_seconds(signals), 1.0)
