"""What scheduling can be set to, and which settings contradict each other: for flags and the scheduler alike."""

from collections.abc import Mapping
from typing import Literal, Protocol

ModeName = Literal["continuous", "dynamic", "static"]
AdmissionName = Literal["greedy", "no-evict", "full-reserve"]
OrderName = Literal["fcfs", "priority", "fair-share", "deadline"]
VictimName = Literal["least-computed", "last-in", "priority"]
PreemptionName = Literal["recompute", "swap", "auto"]


class SchedulingSettings(Protocol):
    """What the rules are about."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def reserved_slots(self) -> int: ...
    @property
    def order(self) -> OrderName: ...
    @property
    def pause_lower_classes(self) -> bool: ...
    @property
    def prefill_first(self) -> bool: ...


def check_scheduling(settings: SchedulingSettings) -> None:
    """Raises ``ValueError`` with field, value and what is allowed."""
    if settings.reserved_slots >= settings.max_num_seqs:
        raise ValueError(
            f"reserved_slots is {settings.reserved_slots}: must be below max_num_seqs, which is {settings.max_num_seqs}"
        )
    if settings.pause_lower_classes and settings.order != "priority":
        raise ValueError(f"pause_lower_classes is True: must be False with order {settings.order!r}")
    if settings.pause_lower_classes and settings.prefill_first:
        raise ValueError("pause_lower_classes is True: must be False with prefill_first")


def check_weights(name: str, weights: Mapping[str, float]) -> None:
    """Raises ``ValueError`` for a share that is none; ``name``: of the setting."""
    for tenant, weight in weights.items():
        if not weight > 0:
            raise ValueError(f"{name} is {weight} for {tenant!r}: must be above 0")
