"""Two real vLLM behind one gateway, of which one is killed under streams: each stream goes on at the other one.

``PATERNOSTER_KILLS`` is how often, 2 by default; another vLLM takes a minute or more to start.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import openai
import psutil
import pytest
from tests.fleet.fleet import Up, find_flag, wait_for
from tests.fleet.test_streams_survive import count_continued, read_streams
from tests.fleet.test_vllm import RUNNING, SLOTS, STARTS_WITHIN, complete, read, spec
from tests.fleet.test_vllm import program as program
from tqdm import tqdm

KILLS = int(os.environ.get("PATERNOSTER_KILLS", "2"))
SEEDS = range(4)
PIECES = 20 * len(SEEDS)
"""Of all streams, before a kill."""

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(1200 + 300 * KILLS)]


def fill_queue(endpoint: str) -> None:
    """So that both vLLMs know the pace of their queues."""

    def send(number: int) -> None:
        with suppress(openai.InternalServerError):
            complete(endpoint, number)

    with ThreadPoolExecutor(4 * SLOTS) as threads:
        list(threads.map(send, range(4 * SLOTS)))


def find_busiest(fleet: Up) -> psutil.Process:
    """The API server of the vLLM that runs most requests."""
    url = max(fleet.replicas().values(), key=lambda url: read(url)[RUNNING])
    port = url.rpartition(":")[2]
    return psutil.Process(next(pid for pid in fleet.engine_pids() if find_flag(pid, "--port") == port))


class Killer:
    """Kills a vLLM, its API server and the processes of its engine, after :data:`PIECES` of all streams."""

    def __init__(self, fleet: Up) -> None:
        self._fleet = fleet
        self._pieces = 0

    def count_piece(self) -> None:
        self._pieces += 1
        if self._pieces == PIECES:
            server = find_busiest(self._fleet)
            for process in [*server.children(recursive=True), server]:
                process.kill()


def test_streams_of_killed_vllms_go_on(program: str, up: Callable[..., Up]) -> None:
    """Also where the queue of the other one is bounded by time, and has no place for a new request."""
    bounds = {"autoscaling": {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2}, "slo": {"ttftP95Milliseconds": 30}}
    fleet = up(**spec(program), **bounds)
    endpoint = fleet.ready(2, STARTS_WITHIN)
    fill_queue(endpoint)
    wait_for(lambda: "queue wait 0->10 ms" in fleet.explain(), "a bound of the queue")
    undisturbed = asyncio.run(read_streams(endpoint, SEEDS, lambda: None))
    equal = 0
    for _ in tqdm(range(KILLS), desc="kills"):
        killer = Killer(fleet)
        texts = asyncio.run(read_streams(endpoint, SEEDS, killer.count_piece))
        equal += sum(text == twin for text, twin in zip(texts, undisturbed, strict=True))
        assert fleet.ready(2, STARTS_WITHIN) == endpoint
    continued = asyncio.run(count_continued(endpoint, "broken"))
    print(f"{KILLS} kills: {continued:.0f} streams went on elsewhere, {equal} of {KILLS * len(SEEDS)} texts were equal")
    assert continued >= KILLS
    assert fleet.interrupt() == 0
