"""Calls that several replicas stopped with, sent one after another: the one that is the cause is then alone."""

from collections import deque

from paternoster_gateway.call.router import Wake
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.limits import PROBE_SECONDS, PROBES, QUIET_SECONDS

PROBATION_SECONDS = QUIET_SECONDS + PROBES * PROBE_SECONDS
"""Time that such a call has its replica without another one: by then the replica is hung, or has answered."""


class Probation:
    """One turn at a time for each fleet, in the order in which they are requested."""

    def __init__(self, wake: Wake) -> None:
        """``wake`` is called with a request once its turn has begun."""
        self._wake = wake
        self._queues: dict[str, deque[RoutedRequest]] = {}
        """Requests by fleet, of which the first has its turn."""

    @property
    def fleets(self) -> list[str]:
        """Fleets of which a request has its turn or waits for it."""
        return list(self._queues)

    def has_turn(self, request: RoutedRequest) -> bool:
        queue = self._queues.get(request.fleet)
        return queue is not None and queue[0] is request

    def request_turn(self, request: RoutedRequest) -> bool:
        """Whether the turn of ``request`` has begun; else it does once no request before it is left."""
        queue = self._queues.setdefault(request.fleet, deque())
        queue.append(request)
        return queue[0] is request

    def end_turn(self, request: RoutedRequest) -> None:
        """The request needs no turn now, whether it has one or waits; more than once has no effect."""
        queue = self._queues.get(request.fleet)
        if queue is None or request not in queue:
            return
        had_turn = self.has_turn(request)
        queue.remove(request)
        if not queue:
            del self._queues[request.fleet]
        elif had_turn:
            self._wake([queue[0]])
