"""Which requests are no longer worth a prefill."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from paternoster_engine.core.request import Request, RequestStatus

MIN_LIMIT = 1024
"""Watched requests above which those that have ended are forgotten."""


class Deadlines:
    """Requests with a deadline, the earliest first. One that decodes when its deadline passes goes on."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()
        self._limit = MIN_LIMIT

    def watch(self, request: Request) -> None:
        """Call for each request that joins the queue, and again when it comes back to it."""
        if request.deadline is None:
            return
        if len(self._heap) >= self._limit:
            # Those that ended in time must not be kept until their deadline.
            self._heap = [entry for entry in self._heap if not entry[2].finished]
            heapify(self._heap)
            self._limit = max(MIN_LIMIT, 2 * len(self._heap))
        heappush(self._heap, (request.deadline, next(self._order), request))

    def expired(self, now: float) -> Iterator[Request]:
        """Requests whose deadline is past and whose next step would be one of prefill."""
        while self._heap and self._heap[0][0] <= now:
            _, _, request = heappop(self._heap)
            prefilling = any(sequence.prefilling for sequence in request.sequences)
            if not request.finished and (request.status is not RequestStatus.RUNNING or prefilling):
                yield request
