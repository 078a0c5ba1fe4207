"""The longest wait in vLLM's queue: how many more requests its engine core has room for, and which begin.

vLLM bounds its queue by a number of requests, fixed at the start. How many of them wait no longer than was set follows
from how fast the queue is worked off, by the latest admissions. Pure; times are the caller's, in seconds.
"""

import math

WEIGHT = 1 / 16
"""Share of the latest admission in the mean time between two."""
MOST_PLACES = 2**31
"""More than any queue has."""
FRESH_SECONDS = 30.0
"""A report that is older refuses no request: the operator and the probes of a pod ask more often."""


class AdmissionPace:
    """Mean time between two admissions from a queue; what was admitted at once says nothing of it."""

    def __init__(self) -> None:
        self.waiting = False
        """Whether the last step left requests in the queue."""
        self._mean: float | None = None
        self._since = 0.0
        """The latest admission, or when a step first left requests."""

    def count_step(self, admitted: int, waiting: int, now: float) -> None:
        """A step admitted some requests, and left others."""
        if not self.waiting:
            self._since = now
        elif admitted:
            self._mean = self._mean_with((now - self._since) / admitted, admitted)
            self._since = now
        self.waiting = waiting > 0

    def seconds_between(self, now: float) -> float:
        """0 while no admission from a queue was seen."""
        if self._mean is None or not self.waiting:
            return self._mean or 0.0
        # That no request has been admitted for long says as much as an admission would now.
        return max(self._mean, self._mean_with(now - self._since, 1))

    def count_places(self, milliseconds: int, now: float) -> int | None:
        """Requests that wait no longer than that, at least one; None where any may wait, or while the pace is unknown.

        ``milliseconds`` of 0 are no limit.
        """
        between = self.seconds_between(now)
        return max(int(min(milliseconds / 1000 / between, MOST_PLACES)), 1) if milliseconds and between else None

    def _mean_with(self, gap: float, count: int) -> float:
        if self._mean is None:
            return gap
        return self._mean + (1 - (1 - WEIGHT) ** count) * (gap - self._mean)


class RequestLimit:
    """How many more requests the engine core has room for, from its last report on.

    A request that begins uses a place, and one that ends leaves one. An answer that its client does not read has none
    after the next report, as the core has made it.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._room: int | None = None
        self._seconds_between = 0.0
        self._updated_at = 0.0

    def update(self, room: int | None, seconds_between: float, now: float) -> None:
        """A report: None is no limit; ``seconds_between``: two admissions."""
        self._room, self._seconds_between, self._updated_at = room, seconds_between, now

    def begin_request(self, now: float, *, is_rest: bool) -> int:
        """0 for a request that the core gets; else the seconds until it may be sent again.

        ``is_rest``: of an answer that another engine began, which no limit refuses.
        """
        if self._room is None or now - self._updated_at > FRESH_SECONDS:
            return 0
        if self._room < 1 and not is_rest:
            self.refused += 1
            return max(1, math.ceil((1 - self._room) * self._seconds_between))
        self._room -= 1
        return 0

    def end_request(self) -> None:
        """A request that began has its answer."""
        if self._room is not None:
            self._room += 1
