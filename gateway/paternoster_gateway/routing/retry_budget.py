"""How many requests of a fleet may be sent a second time: pure, with the time as an argument."""

from collections import deque
from collections.abc import Collection

WINDOW_SECONDS = 10
RATIO = 0.2
"""Retries for each request of the window."""
RESERVE = 100
"""Retries of the window that need no requests: a replica of a quiet fleet may end with all that wait at it."""


class RetryBudget:
    """Within :data:`WINDOW_SECONDS`, at most :data:`RESERVE` retries and :data:`RATIO` for each request.

    After Finagle's ``RetryBudget``, with its numbers (also Linkerd's): 20 %, 10 a second, over 10 s.
    """

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque()

    def count_request(self, now: float) -> None:
        """Count a client's request; ``now`` in seconds of a clock that never goes back."""
        self._current_second(now).requests += 1

    def withdraw_retry(self, now: float) -> bool:
        """Whether one more retry is allowed; it is counted then."""
        second = self._current_second(now)
        allowed = RESERVE + RATIO * sum(each.requests for each in self._seconds)
        if sum(each.retries for each in self._seconds) + 1 > allowed:
            return False
        second.retries += 1
        return True

    def _current_second(self, now: float) -> "_Second":
        number = int(now)
        while self._seconds and self._seconds[0].number <= number - WINDOW_SECONDS:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        return self._seconds[-1]


class _Second:
    """What happened in one second of the clock."""

    __slots__ = ("number", "requests", "retries")

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests = 0
        self.retries = 0


class RetryBudgets:
    """One for each fleet, by model and uid: a model's name may pass to another fleet."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], RetryBudget] = {}

    def get_budget(self, model: str, fleet: str) -> RetryBudget:
        return self._of.setdefault((model, fleet), RetryBudget())

    def retain_only(self, places: Collection[tuple[str, str]]) -> None:
        """Remove the budgets of all other fleets: they have left the routing table."""
        self._of = {place: budget for place, budget in self._of.items() if place in places}
