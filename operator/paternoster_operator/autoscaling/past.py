"""What the last half hour asked for, in marks of half a minute: what peaks are told by."""

from dataclasses import dataclass, replace

SPACING_SECONDS = 30.0
"""What one mark stands for: short against the time that a replica takes to start."""
HORIZON_SECONDS = 1800.0
"""Age at which a mark is forgotten: twice as long as a peak is waited for, so that two and the time after are known."""


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
