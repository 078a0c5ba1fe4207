"""What happens next: a heap of moments, with a fixed order among those that fall together."""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush

Action = Callable[[int], None]


class EventRank(IntEnum):
    """Order at one and the same moment."""

    STEP = 0
    """Steps end first: what arrives as a step begins is too late for it."""
    LIFE = 1
    ARRIVAL = 2
    OBSERVE = 3


class EventQueue:
    """Actions by time. An action is called with the time it was put down for, in picoseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Action]] = []
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, time: int, rank: EventRank, action: Action) -> None:
        self._serial += 1
        heappush(self._heap, (time, rank, self._serial, action))

    @property
    def next_time(self) -> int:
        return self._heap[0][0]

    def run_next(self) -> int:
        """Do what is next; returns its time."""
        time, _, _, action = heappop(self._heap)
        action(time)
        return time
