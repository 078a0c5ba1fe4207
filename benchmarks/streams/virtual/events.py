"""Events of virtual time, and a network that delays each of them and reorders those of different connections."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any


class Clock:
    """Runs events in the order of their times, in virtual seconds."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.num_events = 0
        self._random = random
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._serial = 0

    def after(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        self.at(self.now + seconds, action, *arguments)

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        self._serial += 1
        heappush(self._heap, (max(time, self.now), self._serial, action, arguments))

    def run_next(self) -> bool:
        """Whether there was an event."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heappop(self._heap)
        self.num_events += 1
        action(*arguments)
        return True

    def draw_delay(self) -> float:
        """Seconds that one message takes: mostly a millisecond, now and then as long as three frames."""
        return 0.001 + (self._random.random() * 0.3 if self._random.random() < 0.05 else 0.0)
