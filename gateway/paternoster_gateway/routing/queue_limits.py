"""How long requests may wait in the queue of a fleet, and what those are answered that may not."""

import math

from paternoster_contract.routing import ModelRoute
from paternoster_gateway.routing.decisions import RETRY_AFTER_SECONDS, Reject, RejectionCause, RoutedRequest
from paternoster_gateway.routing.fair_queue import FairQueue
from paternoster_gateway.routing.held_requests import HeldRequests


def hold_request(
    held: HeldRequests, request: RoutedRequest, row: ModelRoute, now: float, *, full: bool
) -> tuple[Reject | None, RoutedRequest | None]:
    """Hold ``request``, or go on; a rejection where it may not wait, and a held one that gives way to it.

    ``full``: replicas serve, and have no place.
    """
    queue, rejection, evicted = held.queue_of(request), None, None
    if request.hold_until is None:
        request.hold_until = _hold_until(request, row, now)
        if full and not request.tried:
            rejection = _reject_slow(request, row, queue, now)
    if request.hold_until <= now:
        rejection = _reject_expired(request, row, queue, now, full=full)
    elif rejection is None and held.count_others(request) >= row.max_held:
        rejection = _reject_full(request, row, queue, now, full=full)
        evicted = held.find_evicted(request)
        if evicted is not None:
            held.remove(evicted)
            evicted.rejection, rejection = rejection, None
    if rejection is None:
        held.add(request, now)
    else:
        held.remove(request)
    return rejection, evicted


def _hold_until(request: RoutedRequest, row: ModelRoute, now: float) -> float:
    """When ``request`` gives up, which begins to wait ``now``."""
    end = now + row.hold_timeout_seconds
    return end if request.deadline is None else min(end, request.deadline)


def _reject_expired(request: RoutedRequest, row: ModelRoute, queue: FairQueue, now: float, *, full: bool) -> Reject:
    """For a request that has waited as long as it may; ``full``: replicas serve, and have no place."""
    model = request.name or request.model
    if request.deadline is not None and request.deadline <= now:
        return Reject(f"The deadline passed before a replica of `{model}` was free.", cause=RejectionCause.DEADLINE)
    waited = "had a free place" if full else "became ready"
    reason = f"No replica of `{model}` {waited} within {row.hold_timeout_seconds:g} s."
    return Reject(reason, _seconds_to_drain(queue, row, now), RejectionCause.FULL) if full else Reject(reason)


def _reject_full(request: RoutedRequest, row: ModelRoute, queue: FairQueue, now: float, *, full: bool) -> Reject:
    """For a request of a fleet that holds as many as it may."""
    others = len(queue) - (request in queue)
    lacks = "has a free place" if full else "is ready"
    reason = f"No replica of `{request.model}` {lacks}, and {others} requests already wait for one."
    return Reject(reason, _seconds_to_drain(queue, row, now), RejectionCause.FULL) if full else Reject(reason)


def _reject_slow(request: RoutedRequest, row: ModelRoute, queue: FairQueue, now: float) -> Reject | None:
    """For a new request that no replica would get in time; None where one would, as fast as they got those before.

    A sender that has less than an equal part of the requests that replicas get in time may queue that part on top, as
    others have filled the queue.
    """
    between, ahead = queue.wait.seconds_between(now), len(queue)
    most = _hold_until(request, row, now) - now
    seconds = (ahead + 1) * between
    if not ahead or seconds <= most:
        return None
    own = queue.count_waiting(request.sender)
    if own < int(most / between) // (queue.count_senders() - (own > 0) + 1):
        return None
    reason = (
        f"{ahead} requests wait for `{request.model}`: this one would be sent in {seconds:.0f} s, not {most:.0f} s."
    )
    return Reject(reason, _retry_after(seconds - most, row), RejectionCause.FULL)


def _seconds_to_drain(queue: FairQueue, row: ModelRoute, now: float) -> int:
    """Until those that wait now have been sent, as fast as those before were."""
    seconds = len(queue) * queue.wait.seconds_between(now)
    return _retry_after(seconds, row) if seconds else RETRY_AFTER_SECONDS


def _retry_after(seconds: float, row: ModelRoute) -> int:
    return max(1, math.ceil(min(seconds, row.hold_timeout_seconds)))
