"""Requests by time: a trace made faster and fitted to an engine, or synthetic chat at a rate that follows a pattern.

All of them are generators in order of arrival, so that hours of traffic take no memory.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paternoster_traces.synthetic import AZURE_CONVERSATION, Workload, generate_rows
from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits, repeat_rows

Rate = Callable[[float], float]
"""Requests per second at a second."""
_DRAWN = 4096
"""Requests whose lengths are drawn at once."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A rate over time."""

    name: str
    rate: Rate
    highest: float
    """No moment has a higher rate."""


def constant_rate(rate: float) -> Pattern:
    return Pattern("constant", lambda t: rate, rate)


def rate_step(rate: float, *, at: float, factor: float = 3.0) -> Pattern:
    """From ``at`` on, ``factor`` times the rate."""
    return Pattern("step", lambda t: rate * (factor if t >= at else 1.0), rate * max(factor, 1.0))


def rate_spike(rate: float, *, at: float, seconds: float, factor: float = 5.0) -> Pattern:
    """For some seconds, ``factor`` times the rate."""
    return Pattern("spike", lambda t: rate * (factor if at <= t < at + seconds else 1.0), rate * max(factor, 1.0))


def rate_bursts(rate: float, *, period: float, share: float = 0.2, factor: float = 4.0, first: float = 0.0) -> Pattern:
    """Once a period, from ``first`` on, for a share of it ``factor`` times the rate."""

    def rate_at(t: float) -> float:
        return rate * (factor if t >= first and (t - first) % period < share * period else 1.0)

    return Pattern("bursts", rate_at, rate * max(factor, 1.0))


def day_night(rate: float, *, period: float, depth: float = 0.8) -> Pattern:
    """A sine around ``rate``: 1 - depth times it at night (which is first), 1 + depth times it at noon."""
    return Pattern(
        "day-night", lambda t: rate * (1.0 - depth * math.cos(2 * math.pi * t / period)), rate * (1.0 + depth)
    )


def rate_ramp(rate: float, *, until: float, factor: float = 4.0, begin: float = 0.0) -> Pattern:
    """From ``begin`` on evenly from the rate to ``factor`` times it, then as high."""

    def rate_at(t: float) -> float:
        return rate * (1.0 + (factor - 1.0) * min(max(t - begin, 0.0) / (until - begin), 1.0))

    return Pattern("ramp", rate_at, rate * max(factor, 1.0))


PATTERNS: dict[str, Callable[[float, float], Pattern]] = {
    "constant": lambda rate, duration: constant_rate(rate),
    "step": lambda rate, duration: rate_step(rate, at=duration / 3),
    "spike": lambda rate, duration: rate_spike(rate, at=duration / 3, seconds=duration / 10),
    "bursts": lambda rate, duration: rate_bursts(rate, period=duration / 10),
    "day-night": lambda rate, duration: day_night(rate, period=duration),
    "ramp": lambda rate, duration: rate_ramp(rate, until=duration),
}
"""Patterns by name, from a rate and a duration."""


def named_pattern(name: str, rate: float, duration: float) -> Pattern:
    """One of :data:`PATTERNS`; raises ``ValueError``."""
    if name not in PATTERNS:
        raise ValueError(f"pattern is {name!r}: must be one of {', '.join(PATTERNS)}")
    if not 0 < rate < math.inf:
        raise ValueError(f"rate is {rate}: must be a finite number above 0")
    if not 0 < duration < math.inf:
        raise ValueError(f"duration is {duration}: must be a finite number above 0")
    return PATTERNS[name](rate, duration)


def generate_requests(
    pattern: Pattern,
    *,
    duration: float,
    seed: int = 0,
    limits: Limits | None = None,
    workload: Workload = AZURE_CONVERSATION,
) -> Iterator[TraceRow]:
    """Poisson arrivals whose rate follows the pattern (by thinning), with lengths drawn from ``workload``."""
    lengths = _draw_lengths(seed, workload, limits or Limits())
    rng = np.random.default_rng((seed, 1))
    time = 0.0
    while True:
        for gap, lot in zip(rng.exponential(1 / pattern.highest, _DRAWN), rng.random(_DRAWN), strict=True):
            time += float(gap)
            if time >= duration:
                return
            if lot * pattern.highest < pattern.rate(time):
                row = next(lengths)
                yield TraceRow(time, row.prompt_tokens, row.output_tokens, row.prefix_blocks)


def replay_trace(
    rows: Sequence[TraceRow],
    *,
    speed: float = 1.0,
    rate: float | None = None,
    start: float = 0.0,
    duration: float | None = None,
    limits: Limits | None = None,
) -> Iterator[TraceRow]:
    """A trace's rows from its second ``start`` on, ``speed`` times as fast, repeated until ``duration``.

    ``rate`` sets the speed so that on average that many requests come a second. Without a duration the trace is
    played once. ``start`` is in the trace's own time.
    """
    if speed <= 0:
        raise ValueError(f"speed is {speed}: must be above 0")
    if rate is not None and rate <= 0:
        raise ValueError(f"rate is {rate}: must be above 0")
    rows = [replace(row, arrival_s=row.arrival_s - start) for row in rows if row.arrival_s >= start]
    if not rows:
        raise ValueError(f"start is {start}: must be before the trace's last request")
    if rate is not None:
        span = rows[-1].arrival_s
        if span == 0:
            raise ValueError("rate: the trace's requests come all at once and have none")
        speed = rate * span / max(len(rows) - 1, 1)
    if duration is not None and rows[-1].arrival_s == 0:
        raise ValueError("duration: the trace's requests come all at once and cannot be repeated")
    limits = limits or Limits()
    for row in rows if duration is None else repeat_rows(rows):
        time = row.arrival_s / speed
        if duration is not None and time >= duration:
            return
        yield replace(limits.clip_row(row), arrival_s=time)


def _draw_lengths(seed: int, workload: Workload, limits: Limits) -> Iterator[TraceRow]:
    draw = 0
    while True:
        state = int(np.random.SeedSequence((seed, draw)).generate_state(1)[0])
        for row in generate_rows(_DRAWN, seed=state, workload=workload):
            yield limits.clip_row(row)
        draw += 1
