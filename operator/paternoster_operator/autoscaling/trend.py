"""Where the arrivals are going: a ramp is met before it is there, by the time that a replica takes to start.

A straight line is fitted to the last minutes. It counts when it rises beyond doubt and explains what was seen: a step
or a burst rises too, and is over as suddenly as it came, but it is no line.
"""

import math
from collections.abc import Sequence

BASELINE_SECONDS = 300.0
"""What the line is fitted to: long enough to tell a ramp from chance, short against the time of day."""
SPACING_SECONDS = 30.0
"""Between two points, so that they share no request."""
FEWEST = 6
CERTAINTY = 2.5
"""Standard errors by which the slope must be above zero."""
MISFIT = 3.0
"""Mean squared residual, in variances, above which the line explains nothing."""
LARGEST = 2.0
"""Most that is forecast, times the present rate."""

Arrivals = tuple[tuple[float, float], ...]
"""(time, requests a second), oldest first."""


def note(arrivals: Arrivals, now: float, rate: float) -> Arrivals:
    """Take a rate in, unless the last one was just taken; what is older than the baseline is forgotten."""
    if arrivals and 0 <= now - arrivals[-1][0] < SPACING_SECONDS:
        return arrivals
    kept = tuple(point for point in arrivals if now - BASELINE_SECONDS <= point[0] < now)
    return (*kept, (now, rate))


def growth(arrivals: Sequence[tuple[float, float]], ahead: float) -> float:
    """By how much the rate will have grown ``ahead`` seconds from the last point: 1 to :data:`LARGEST`."""
    n = len(arrivals)
    if n < FEWEST:
        return 1.0
    last = arrivals[-1][0]
    times = [time - last for time, _ in arrivals]
    rates = [rate for _, rate in arrivals]
    mean_t, mean = sum(times) / n, sum(rates) / n
    spread = sum((t - mean_t) ** 2 for t in times)
    slope = sum((t - mean_t) * (y - mean) for t, y in zip(times, rates, strict=True)) / spread
    level = mean - slope * mean_t
    if slope <= 0 or level <= 0:
        return 1.0
    variance = mean / SPACING_SECONDS  # of independent arrivals
    residuals = [y - (level + slope * t) for t, y in zip(times, rates, strict=True)]
    misfit = sum(r * r for r in residuals) / (n - 2) / variance
    if slope < CERTAINTY * math.sqrt(variance / spread) or misfit > MISFIT:
        return 1.0
    return min(1.0 + slope * ahead / level, LARGEST)
