"""What the last half hour asked for, and what its peaks say of the next: what one takes, and how many replicas stay.

The formula sizes for traffic that stays. A peak that is over sooner than its answers are never fills what was ordered
for it, and what it did fill is known where one like it was there before: as many are ordered. When it lasts longer than
that one did, or first tokens come late, the formula has its way.

Spare replicas go after the window of scaling down; those that a peak filled stay for longer, as the next may come.
Keeping what was used for a fixed time is from serverless platforms (Shahrad et al., "Serverless in the Wild", USENIX
ATC 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

SPACING_SECONDS = 30.0
"""What one mark stands for: short against the time that a replica takes to start."""
HORIZON_SECONDS = 1800.0
"""Age at which a mark is forgotten: two peaks and the time between them are known."""
ALIKE = 1.1
"""Times the arrivals of the peak before that this one may have: as much as those of half a minute differ by chance."""
PEAK = 2.0
"""Times what was needed after it that a peak needed: the noise around a number of replicas is no peak."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The most of half a minute."""

    time: float
    """When it begins, on the caller's clock."""
    filled: int
    """Replicas that what ran would have filled, of those there were."""
    taken: int
    """Replicas that what ran and waited would have filled, however many there were."""
    need: float
    """Replicas that the formula wanted, before rounding."""
    rate: float
    """Arrivals a second."""


Past = tuple[Mark, ...]
"""Oldest first."""


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


def note(past: Past, mark: Mark) -> Past:
    """Take a look's numbers in; what is too old, or later than now, is forgotten."""
    past = tuple(known for known in past if mark.time - HORIZON_SECONDS <= known.time <= mark.time)
    if not past or mark.time - past[-1].time >= SPACING_SECONDS:
        return (*past, mark)
    last = past[-1]
    most = replace(
        last,
        filled=max(last.filled, mark.filled),
        taken=max(last.taken, mark.taken),
        need=max(last.need, mark.need),
        rate=max(last.rate, mark.rate),
    )
    return (*past[:-1], most)


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


def filled_within(past: Past, seconds: float) -> int:
    """Most replicas that what ran would have filled in the last ``seconds``; 0 where nothing is known.

    Not what had been ordered while nobody knew how high a peak would be. Marks are counted, not clocks compared: a
    silence or a clock that jumps is no gap.
    """
    return max((mark.filled for mark in past[-1 - int(seconds // SPACING_SECONDS) :]), default=0)


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
