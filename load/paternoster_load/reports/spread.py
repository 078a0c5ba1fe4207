"""A number that was measured several times: its median, its least and its most."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread":
        """Raises :class:`ValueError` for no values."""
        if not values:
            raise ValueError("spread: has no values")
        return cls(statistics.median(values), min(values), max(values))

    def to_document(self) -> dict[str, float]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"
