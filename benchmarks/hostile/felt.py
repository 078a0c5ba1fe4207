"""What a well-behaved client felt, alone and beside attackers, and whether that is near enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

MOST_TIMES, MOST_SECONDS_MORE = 1.5, 0.2
"""Most times of its p99 when alone, and seconds beyond it where that is more."""


@dataclass
class Felt:
    """Seconds."""

    first: list[float] = field(default_factory=list)
    """From request to first token, or to the whole answer where that has no tokens."""
    between: list[float] = field(default_factory=list)
    """Between tokens."""
    refused: int = 0
    """Requests with any other end than a whole answer."""
    refusals: list[str] = field(default_factory=list)
    """What was seen of those, for the first few."""

    def refuse(self, seen: str) -> None:
        self.refused += 1
        if len(self.refusals) < 3:
            self.refusals.append(seen[:200])


@dataclass(frozen=True)
class Comparison:
    """Comparison of one measure: milliseconds alone and attacked, p50 and p99."""

    alone: tuple[float, float]
    attacked: tuple[float, float]

    @classmethod
    def of(cls, alone: Sequence[float], attacked: Sequence[float]) -> "Comparison":
        return cls(_percentiles(alone), _percentiles(attacked))

    @property
    def ratios(self) -> tuple[float, float]:
        return self.attacked[0] / self.alone[0], self.attacked[1] / self.alone[1]

    @property
    def passes(self) -> bool:
        """Where nothing was measured beside attackers it does not."""
        alone, attacked = self.alone[1], self.attacked[1]
        return attacked <= max(MOST_TIMES * alone, alone + 1000 * MOST_SECONDS_MORE)


def compare(alone: Felt, attacked: Felt) -> dict[str, Comparison]:
    """Comparisons by measure; none where there is nothing of it when alone."""
    found = {name: (getattr(alone, name), getattr(attacked, name)) for name in ("first", "between")}
    return {name: Comparison.of(*seconds) for name, seconds in found.items() if seconds[0]}


def passes(attacked: Felt, comparisons: Mapping[str, Comparison]) -> bool:
    return attacked.refused == 0 and all(each.passes for each in comparisons.values())


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds; infinite where there is nothing."""
    if not seconds:
        return float("inf"), float("inf")
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return float(p50), float(p99)
