"""Goodput: requests per second that stay within every limit their users were promised (DistServe, OSDI'24)."""

from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_load.results import RequestEnd, RequestResult

KEYS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True, slots=True)
class Goodput:
    """Limits in milliseconds, by key."""

    limits: dict[str, float]

    @classmethod
    def parse(cls, pairs: Sequence[str]) -> "Goodput":
        """From ``KEY:MS`` texts; raises :class:`ValueError`."""
        limits: dict[str, float] = {}
        for pair in pairs:
            key, _, text = pair.partition(":")
            if key not in KEYS:
                raise ValueError(f"goodput is {pair!r}: must be KEY:MS with KEY one of {', '.join(KEYS)}")
            try:
                limit = float(text)
            except ValueError:
                limit = 0.0
            if not 0 < limit < float("inf"):
                raise ValueError(f"goodput is {pair!r}: must have a number of milliseconds above 0 after the colon")
            limits[key] = limit
        return cls(limits)

    def is_met(self, result: RequestResult) -> bool:
        """Whether this request completed within every limit; a time that it does not have is within."""
        if result.outcome is not RequestEnd.COMPLETED:
            return False
        times = {
            "ttft": result.ttft,
            "tpot": result.tpot,
            "itl": sum(result.itls) / len(result.itls) if result.itls else None,
            "e2el": result.latency,
        }
        return all((times[key] or 0.0) * 1000 <= limit for key, limit in self.limits.items())

    def count(self, results: Sequence[RequestResult]) -> int:
        return sum(self.is_met(result) for result in results)
