"""Turns of suspects in virtual time: one whose replica handed it over does not lose its next turn to an old timer."""

from typing import Any, cast

from paternoster_simulator.cost import to_ticks
from paternoster_simulator.events import EventQueue
from paternoster_simulator.fleet import Pod
from paternoster_simulator.virtual_gateway import VirtualGateway
from paternoster_traces.trace import TraceRow


class StubReplica:
    """A replica that computes nothing: the test decides when it ends, and what is finished."""

    def __init__(self) -> None:
        self.end = None
        self.in_flight = 0
        self.requests: list[Any] = []

    def add(self, request: Any, now: int) -> None:
        request.first_token = None
        self.requests.append(request)

    def take_requests(self, now: int) -> list[Any]:
        requests, self.requests = self.requests, []
        return requests


def test_a_timer_of_an_attempt_before_ends_no_turn() -> None:
    events, replicas = EventQueue(), [StubReplica() for _ in range(4)]
    pods = [Pod(f"{number}", number, 0, engine=cast(Any, replica)) for number, replica in enumerate(replicas)]
    gateway = VirtualGateway(
        events, prefix_cache=False, max_held=256, hold_timeout=120.0, wake=lambda *_: None, idle=lambda *_: None,
        hand_over=False,
    )  # fmt: skip

    def run_until(seconds: float) -> None:
        while events and events.next_time <= to_ticks(seconds):
            events.run_next()

    def kill(number: int, seconds: float) -> None:
        requests = replicas[number].take_requests(0)
        gateway.on_pod_leaving(pods[number], to_ticks(seconds))
        gateway.on_engine_end(pods[number], requests, to_ticks(seconds))
        run_until(seconds)

    gateway.on_pod_ready(pods[0], 0)
    for _ in range(2):
        gateway.on_arrival(TraceRow(0.0, 10, 10), 0)
    gateway.on_pod_ready(pods[1], 0)
    kill(0, 0.1)
    gateway.on_pod_ready(pods[2], to_ticks(0.1))
    kill(1, 0.2)
    assert len(replicas[2].requests) == 1, "both are suspects of two stops, and the first has its turn"
    gateway.on_pod_ready(pods[3], to_ticks(1.0))
    gateway.on_pod_leaving(pods[2], to_ticks(2.0))
    gateway.move_requests(pods[2], to_ticks(2.0))
    run_until(10.0)
    for seconds in (10.5, 11.0):
        for pod, replica in zip(pods, replicas, strict=True):
            if requests := replica.take_requests(0):
                for request in requests:
                    request.first_token = to_ticks(seconds)
                gateway.on_finished(pod, requests, to_ticks(seconds))
        run_until(seconds)
    assert gateway.unanswered == 0
