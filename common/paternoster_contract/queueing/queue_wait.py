"""How fast a queue is worked off, by the latest admissions.

An engine with more requests than it can serve answers in time only what it queues briefly: behind a queue of a
thousand every request is late. Times are the caller's, in any one unit.
"""

from dataclasses import dataclass

WEIGHT = 1 / 16
"""Share of the latest admission in the mean time between two: a change of traffic counts after about as many."""


@dataclass(frozen=True, slots=True)
class QueuePace:
    """How fast the queue is worked off, and how long a request may wait in it."""

    seconds_between: float
    """Time between two admissions."""
    most_seconds: float


class QueueWait:
    """Mean time between two admissions while requests wait, and how long a request may wait."""

    def __init__(self, ticks_per_second: int = 1) -> None:
        """``ticks_per_second``: unit of the times that callers pass."""
        self._ticks_per_second = ticks_per_second
        self._max_milliseconds = 0
        self._mean: float | None = None
        self._since = 0.0
        """The latest admission, or when the first of those that wait came."""

    @property
    def max_milliseconds(self) -> int:
        """A request that would wait longer than this is refused; 0: none is. Acts on requests that come from now on."""
        return self._max_milliseconds

    @max_milliseconds.setter
    def max_milliseconds(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError(f"max_queue_milliseconds is {milliseconds}: must be at least 0")
        self._max_milliseconds = milliseconds

    def queue_pace(self, now: float) -> QueuePace | None:
        """None where requests may wait for any time."""
        if not self._max_milliseconds:
            return None
        return QueuePace(self.seconds_between(now) / self._ticks_per_second, self._max_milliseconds / 1000)

    def start_queue(self, now: float) -> None:
        """A request joins an empty queue."""
        self._since = now

    def admit(self, count: int, now: float) -> None:
        """A step admitted ``count`` requests."""
        if count:
            self._mean = self._mean_with((now - self._since) / count, count)
            self._since = now

    def seconds_between(self, now: float) -> float:
        """Time between two admissions; 0 while none was seen."""
        if self._mean is None:
            return 0.0
        # That no request has been admitted for long says as much as an admission would now.
        return max(self._mean, self._mean_with(now - self._since, 1))

    def _mean_with(self, gap: float, count: int) -> float:
        if self._mean is None:
            return max(gap, 0.0)
        return self._mean + (1 - (1 - WEIGHT) ** count) * (max(gap, 0.0) - self._mean)
