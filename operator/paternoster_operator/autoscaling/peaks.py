"""What the last half hour asked for, and what its peaks say of the next: what one takes, and whether to wait for it.

**Precedent.** The formula sizes for traffic that stays. A peak that is over sooner than its answers are never fills
what was ordered for it, and what it did fill is known where one like it was there before. When it lasts longer than
that one did, or first tokens come late, the formula has its way.

**Recurrence.** Spare replicas go after the window of scaling down; those that a peak filled stay until the next could
be there. A level of use that was left and reached again is expected once more after as long a time. Keeping by the time
between two uses is from serverless platforms (Shahrad et al., "Serverless in the Wild", USENIX ATC 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

SPACING_SECONDS = 30.0
"""What one mark stands for: short against the time that a replica takes to start."""
HORIZON_SECONDS = 1800.0
"""Age at which a mark is forgotten: twice as long as a peak is waited for, so that two and the time after are known."""
ALIKE = 1.1
"""Times the arrivals of the peak before that this one may have: as much as those of half a minute differ by chance."""
PEAK = 2.0
"""Times what was needed after it that a peak needed: the noise around a number of replicas is no peak."""
MARGIN = 1.5
"""Times the longest gap seen for which a peak may stay away: what comes again is rarely punctual."""
FIRST_KEPT_SECONDS = 600.0
"""For how long the next is waited for while there was but one: the shorter of the times, 10 and 20 minutes, that the
platforms in the source keep whatever was used."""
LONGEST_KEPT_SECONDS = 900.0
"""For how long at most: a peak that was chance costs a quarter of an hour of what it filled and no more."""


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


@dataclass(frozen=True, slots=True)
class Peak:
    """What is kept, since when it has not been needed, and for how long it may stay so, in seconds."""

    replicas: int
    away_seconds: float
    kept_seconds: float


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


def expected(past: Past, left_seconds: float, most_seconds: float = LONGEST_KEPT_SECONDS) -> Peak | None:
    """The highest level that may come again; None without one. None is kept for more than ``most_seconds``.

    A level is left when what runs stays below it for more than ``left_seconds``: less is the noise of one peak. Kept is
    what ran, not what had been ordered while nobody knew how high the peak would be.
    """
    filled = [mark.filled for mark in past]
    for level in sorted(set(filled), reverse=True):
        gaps, away = _gaps(filled, level)
        known = [gap for gap in gaps if gap > left_seconds]
        kept = min(MARGIN * max(known) if known else FIRST_KEPT_SECONDS, LONGEST_KEPT_SECONDS, most_seconds)
        if away <= kept:
            return Peak(level, away, kept)
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


def _gaps(filled: Sequence[int], level: int) -> tuple[list[float], float]:
    """Seconds below the level, each time between two that it was reached; and since the last.

    Marks are counted, not clocks compared: a silence or a clock that jumps is no gap.
    """
    runs = [(below, len(list(run)) * SPACING_SECONDS) for below, run in groupby(most < level for most in filled)]
    below, last = runs[-1]
    return [seconds for below, seconds in runs[1:-1] if below], last if below else 0.0
