"""The longest wait in vLLM's queue: the pace of its engine core, and the limit of requests in its API server; pure.

vLLM bounds its queue by a number of requests, fixed at the start. How many of them wait no longer than was set follows
from how fast the queue is worked off, by the latest admissions.
"""

import math

WEIGHT = 1 / 16
"""Of the latest admission in the mean time between two."""


class AdmissionPace:
    """Mean time between two admissions while requests wait; times are the caller's, in seconds."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._since = 0.0
        """The latest admission, or when the first of those that wait was seen."""
        self._waiting = False

    def count_step(self, admitted: int, waiting: int, now: float) -> None:
        """A step admitted some requests, and others still wait."""
        if not self._waiting:
            self._since = now
        if admitted:
            self._mean = self._mean_with((now - self._since) / admitted, admitted)
            self._since = now
        self._waiting = waiting > 0

    def seconds_between(self, now: float) -> float:
        """0 while no admission was seen."""
        if self._mean is None or not self._waiting:
            return self._mean or 0.0
        # That no request has been admitted for long says as much as an admission would now.
        return max(self._mean, self._mean_with(now - self._since, 1))

    def count_places(self, milliseconds: int, now: float) -> int | None:
        """Requests that wait no longer than that, at least one; None where any may wait, or while the pace is unknown.

        ``milliseconds`` of 0 are no limit.
        """
        between = self.seconds_between(now)
        return max(int(milliseconds / 1000 / between), 1) if milliseconds and between else None

    def _mean_with(self, gap: float, count: int) -> float:
        if self._mean is None:
            return gap
        return self._mean + (1 - (1 - WEIGHT) ** count) * (gap - self._mean)


class RequestLimit:
    """The requests of one API server that generate, and how many there may be."""

    def __init__(self) -> None:
        self.refused = 0
        self._present = 0
        self._most: int | None = None
        self._seconds_between = 0.0

    def update(self, most: int | None, seconds_between: float) -> None:
        """At most ``most`` requests from now on, None is no limit; ``seconds_between``: two admissions."""
        self._most, self._seconds_between = most, seconds_between

    def begin_request(self, *, is_rest: bool) -> int:
        """0 for a request that counts until :meth:`end_request`; else the seconds until it may be sent again.

        ``is_rest``: of an answer that another engine began, which no limit refuses.
        """
        if self._most is not None and self._present >= self._most and not is_rest:
            self.refused += 1
            return max(1, math.ceil((self._present + 1 - self._most) * self._seconds_between))
        self._present += 1
        return 0

    def end_request(self) -> None:
        """A request that began has its answer."""
        self._present -= 1
