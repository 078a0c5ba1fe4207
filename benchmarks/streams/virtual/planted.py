"""One fault of the gateway for each invariant: a run that does not find it checks nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.probation import Probation
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.call.suspicion import ReplicaStops
from paternoster_gateway.routing.decisions import Result

_resume = Call.resume


def _resume_a_frame_earlier(self: Call, num_frames: int, numerics: str, journal: bytes) -> Call:
    return _resume(self, max(0, num_frames - 1), numerics, journal)


def _keep_answer(self: CallSession, answer: Any, result: Result | None = None) -> Iterator[Any]:
    if result is not None:
        self._router.report_result(self.request, answer.replica, result)
    self._router.end_attempt(self.request, answer.replica)
    yield from ()


def _wake_nobody(self: Probation, request: Any) -> None:
    queue = self._queues.get(request.fleet)
    if queue is not None and request in queue:
        queue.remove(request)
        if not queue:
            del self._queues[request.fleet]


def _blame_nobody(self: ReplicaStops, suspect: bytes, *arguments: Any) -> bool:
    return False


def _blame_whoever_was_there(self: ReplicaStops, suspect: bytes, stops: Any, *arguments: Any) -> bool:
    return len(stops) >= 2


FAULTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "bytes": (Call, "resume", _resume_a_frame_earlier),
    "attempt": (CallSession, "_close_answer", _keep_answer),
    "held": (Probation, "end_turn", _wake_nobody),
    "poison": (ReplicaStops, "is_cause", _blame_nobody),
    "bystander": (ReplicaStops, "is_cause", _blame_whoever_was_there),
}
"""Class, method and its replacement, by the first word of the violation."""


@contextmanager
def plant_fault(name: str) -> Iterator[None]:
    """Within the block, the gateway has the fault ``name``."""
    owner, method, replacement = FAULTS[name]
    with mock.patch.object(owner, method, replacement):
        yield
