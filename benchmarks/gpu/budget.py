"""The time of a part of the check, and the ceilings that its figures are shares of."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this GPU does at best in the plainest operations, measured in the same run."""

    bytes_per_second: float
    flops_per_second: float


class Budget:
    """``seconds`` from now on: what does not fit is left out and reported."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._seconds = seconds

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it was overrun."""
        return self._seconds - (self._clock() - self._began)

    def allows(self, what: str) -> bool:
        """Whether there is time left to begin ``what``; says so when there is not."""
        if self.left > 0:
            return True
        print(f"{what}: not measured, the {self._seconds:.0f} s for this part were over", flush=True)
        return False

    def part(self, seconds: float) -> "Budget":
        """``seconds`` of it, or what is left."""
        return Budget(max(0.0, min(seconds, self.left)), self._clock)
