"""The trend of arrivals: replicas for a ramp are ordered ahead of it, by the time that a replica takes to start.

A straight line is fitted to the last minutes. It counts when it rises beyond doubt and explains what was seen: a step
or a burst rises too, and is over as suddenly as it came, but it is no line.
"""

import math
from collections.abc import Sequence

from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning

Arrivals = tuple[tuple[float, float], ...]
"""(time, requests a second), oldest first."""


def record_arrivals(arrivals: Arrivals, now: float, signals: Signals, tuning: Tuning) -> Arrivals:
    """Append the rate of a window that shares no request with the last one; those older than the line are dropped."""
    if arrivals and 0 <= now - arrivals[-1][0] < signals.window_seconds:
        return arrivals
    recent = tuple(point for point in arrivals if now - tuning.trend_seconds <= point[0] < now)
    return (*recent, (now, signals.arrival_rate))


def forecast_growth(
    arrivals: Sequence[tuple[float, float]], ahead: float, window_seconds: float, tuning: Tuning
) -> float:
    """Factor of the rate ``ahead`` seconds from the last point; 1 where the points are no rising line."""
    n = len(arrivals)
    if n < 3:
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
    variance = mean / window_seconds  # of independent arrivals
    residuals = [y - (level + slope * t) for t, y in zip(times, rates, strict=True)]
    misfit = sum(r * r for r in residuals) / (n - 2) / variance
    if slope < tuning.trend_certainty * math.sqrt(variance / spread) or misfit > tuning.trend_misfit:
        return 1.0
    return 1.0 + slope * ahead / level
