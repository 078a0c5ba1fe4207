"""Peaks that were there before: replicas are ordered by what such a peak really took, while it lasts no longer.

The formula sizes for traffic that stays. A peak that is over sooner than its answers are never fills what was ordered
for it, and what it did fill is known where one like it was there before. When it lasts longer than that one did, or
first tokens come late, the formula has its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paternoster_operator.autoscaling.past import SPACING_SECONDS, Mark, Past

ALIKE = 1.1
"""Times the arrivals of the peak before that this one may have: as much as those of half a minute differ by chance."""
PEAK = 2.0
"""Times what was needed after it that a peak needed: the noise around a number of replicas is no peak."""


@dataclass(frozen=True, slots=True)
class Precedent:
    """The last peak like the one that is there."""

    replicas: int
    """What ran and waited would have filled, at most."""
    lasted_seconds: float
    ago_seconds: float
    """From its begin to the begin of this one."""

    def __str__(self) -> str:
        ago, lasted = f"{self.ago_seconds:.0f} s before", f"{self.lasted_seconds:.0f} s"
        return f"one like it, {ago}, took {self.replicas} and was over in {lasted}"


def precedent(past: Past, current: int, left_seconds: float) -> Precedent | None:
    """The last peak that needed more than ``current`` replicas, as many arrivals, and at least as long as this one.

    None without one, or where no more are needed now. A peak is left when fewer are needed for more than
    ``left_seconds``.
    """
    peaks = _peaks(past, current, left_seconds)
    if not peaks or peaks[-1][-1] is not past[-1]:
        return None
    this = peaks[-1]
    for peak, following in reversed(list(pairwise(peaks))):
        after = [mark.need for mark in past if peak[-1].time < mark.time < following[0].time]
        stood_out = max(mark.need for mark in peak) >= PEAK * sum(after) / len(after)
        as_many = max(mark.rate for mark in peak) * ALIKE >= this[-1].rate
        if stood_out and as_many and len(peak) >= len(this):
            # What waited is through, or was given up, by the time of the next.
            taken = max(mark.taken for mark in past if peak[0].time <= mark.time < following[0].time)
            return Precedent(taken, len(peak) * SPACING_SECONDS, this[0].time - peak[0].time)
    return None


def _peaks(past: Past, current: int, left_seconds: float) -> Sequence[Sequence[Mark]]:
    """The marks above ``current``, those of a peak together. Marks are counted, not clocks compared."""
    peaks: list[list[Mark]] = []
    below = 0.0
    for mark in past:
        if mark.need <= current:
            below += SPACING_SECONDS
            continue
        if not peaks or below > left_seconds:
            peaks.append([])
        peaks[-1].append(mark)
        below = 0.0
    return peaks
