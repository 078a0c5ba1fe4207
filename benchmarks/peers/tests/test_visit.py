"""How often a peer is started, and for how many requests at once, with a peer of the test's own."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from paternoster_load.results import BenchRequest, RequestResult
from peers.measure import visit
from peers.parts import Store
from peers.peer import OnResult, Running
from peers.systems.in_process import result_of

REQUESTS = [BenchRequest(n, [n, n + 1], 2) for n in range(3)]
PLAN = [(8, REQUESTS), (2, REQUESTS), (1, REQUESTS[:1])]


class Instant:
    """Answers in no time, and remembers what was asked of it but to warm up."""

    name = "instant"
    precision = "bf16"

    def __init__(self, starts_anew: bool) -> None:
        self.starts_anew = starts_anew
        self.session = os.getsid(0)
        self.started: list[int] = []
        self.served: list[tuple[int, int]] = []

    def describe(self) -> str:
        return "instant 1"

    def set_up(self) -> None:
        """Nothing."""

    @contextmanager
    def start(self, checkpoint: Path, threads: int, most: int, log: Path) -> Iterator[Running]:
        self.started.append(most)
        yield self

    def serve(self, requests: Sequence[BenchRequest], concurrency: int, on_result: OnResult) -> list[RequestResult]:
        if requests[0].index >= 0:
            self.served.append((len(requests), concurrency))
        times = [[0.5 + n / 8 for n in range(request.max_tokens)] for request in requests]
        answers = zip(requests, times, strict=True)
        return [result_of({"index": r.index, "start": 0.0, "times": t}, r.prompt_tokens) for r, t in answers]


@pytest.mark.parametrize(("starts_anew", "started"), [(False, [8]), (True, [8, 2, 1])])
def test_a_peer_is_started_for_the_most_requests_of_a_start(
    tmp_path: Path, starts_anew: bool, started: list[int]
) -> None:
    peer, store = Instant(starts_anew), Store(tmp_path / "parts")
    visit(peer, tmp_path, 1, PLAN, 0, store)
    assert peer.started == started
    assert peer.served == [(len(requests), concurrency) for concurrency, requests in PLAN]
    assert [part.output_tokens for part in store.read_all(["instant"], [8, 2, 1], 1)] == [6, 6, 2]


def test_parts_that_are_kept_start_nothing(tmp_path: Path) -> None:
    peer, store = Instant(True), Store(tmp_path / "parts")
    visit(peer, tmp_path, 1, PLAN[1:], 0, store)
    visit(peer, tmp_path, 1, PLAN, 0, store)
    assert peer.started == [2, 1, 8]
