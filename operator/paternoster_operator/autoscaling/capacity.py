"""How many sequences one replica can run at once and stay healthy: the smallest of what bounds it."""

from dataclasses import dataclass
from typing import Literal

from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_operator.autoscaling.policy import CapPolicy, ScalingPolicy, SloPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel

ITL_MARGIN = 0.9
"""Share of the latency limit that the mean is planned for: requests differ, and the limit is for the slow ones."""

Bound = Literal["max_num_seqs", "live cap", "KV", "ITL"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sequences at once of one replica, and what allows no more."""

    sequences: float
    bound: Bound

    def __str__(self) -> str:
        return f"{self.sequences:.1f} by {self.bound}"


def replica_capacity(policy: ScalingPolicy, model: ReplicaModel) -> Capacity:
    """What one replica sustains, as far as is known; what is unknown does not bound. At least one sequence.

    Independent of the live cap, so that cutting the cap never looks like new demand.
    """
    cap = policy.cap
    top = cap.initial if cap.mode is ConcurrencyMode.FIXED else cap.maximum
    bounds = [Capacity(top, "max_num_seqs")]
    if (room := kv_room(cap, model)) is not None:
        bounds.append(Capacity(room, "KV"))
    if (room := itl_room(policy.slo, model)) is not None:
        bounds.append(Capacity(room, "ITL"))
    least = min(bounds, key=lambda capacity: capacity.sequences)
    return Capacity(max(least.sequences, 1.0), least.bound)


def kv_room(cap: CapPolicy, model: ReplicaModel) -> float | None:
    """Sequences that fill the KV pool up to the high-water mark; None while their size is unknown."""
    share = model.kv_per_sequence
    return None if share is None else cap.kv_high_watermark / share


def itl_room(slo: SloPolicy | None, model: ReplicaModel, margin: float = ITL_MARGIN) -> float | None:
    """Sequences that keep the time between two tokens within its limit; None without a limit or while unknown."""
    return None if slo is None or slo.itl is None else model.most_within(slo.itl * margin)


def decode_room(slo: SloPolicy | None, model: ReplicaModel) -> float | None:
    """Sequences whose step keeps that limit when no prompt is in it; None without a limit or while unknown."""
    return None if slo is None or slo.itl is None else model.steps.decode_room(slo.itl)
