"""Peaks that may come again: the replicas that one filled are kept until the next could be there.

Spare replicas go after the window of scaling down; those whose places were filled stay longer. A level of use that was
left and reached again is expected once more after as long a time; of one that was reached once nothing is known but
that it was. Kept is what ran, not what had been ordered while nobody knew how high the peak would be. Keeping by the
time between two uses is from serverless platforms (Shahrad et al., "Serverless in the Wild", USENIX ATC 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from paternoster_operator.autoscaling.past import SPACING_SECONDS, Past

MARGIN = 1.5
"""Times the longest gap seen for which a peak may stay away: what comes again is rarely punctual."""
FIRST_KEPT_SECONDS = 600.0
"""For how long the next is waited for while there was but one: the shorter of the times, 10 and 20 minutes, that the
platforms in the source keep whatever was used."""
LONGEST_KEPT_SECONDS = 900.0
"""For how long at most: a peak that was chance costs a quarter of an hour of what it filled and no more."""


@dataclass(frozen=True, slots=True)
class Peak:
    """What is kept, since when it has not been needed, and for how long it may stay so, in seconds."""

    replicas: int
    away_seconds: float
    kept_seconds: float


def expected(past: Past, left_seconds: float, most_seconds: float = LONGEST_KEPT_SECONDS) -> Peak | None:
    """The highest level that may come again; None without one. None is kept for more than ``most_seconds``.

    A level is left when what runs stays below it for more than ``left_seconds``: less is the noise of one peak.
    """
    filled = [mark.filled for mark in past]
    for level in sorted(set(filled), reverse=True):
        gaps, away = _gaps(filled, level)
        known = [gap for gap in gaps if gap > left_seconds]
        kept = min(MARGIN * max(known) if known else FIRST_KEPT_SECONDS, LONGEST_KEPT_SECONDS, most_seconds)
        if away <= kept:
            return Peak(level, away, kept)
    return None


def _gaps(filled: Sequence[int], level: int) -> tuple[list[float], float]:
    """Seconds below the level, each time between two that it was reached; and since the last.

    Marks are counted, not clocks compared: a silence or a clock that jumps is no gap.
    """
    runs = [(below, len(list(run)) * SPACING_SECONDS) for below, run in groupby(most < level for most in filled)]
    below, last = runs[-1]
    return [seconds for below, seconds in runs[1:-1] if below], last if below else 0.0
