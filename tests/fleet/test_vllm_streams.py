"""Two real vLLM behind one gateway, killed in turn under streams: each stream goes on at the other one.

``PATERNOSTER_KILLS`` is how often, 2 by default; another vLLM takes a minute or more to start.
"""

import asyncio
import os
from collections.abc import Callable

import psutil
import pytest
from tests.fleet.fleet import Up
from tests.fleet.test_streams_survive import count_continued, read_streams
from tests.fleet.test_vllm import STARTS_WITHIN, spec
from tests.fleet.test_vllm import program as program
from tqdm import tqdm

KILLS = int(os.environ.get("PATERNOSTER_KILLS", "2"))
SEEDS = range(4)
PIECES = 20 * len(SEEDS)
"""Of all streams, before a kill."""

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(1200 + 300 * KILLS)]


class Killer:
    """Kills one vLLM, its API server and the processes of its engine, after :data:`PIECES` of its streams."""

    def __init__(self, pid: int) -> None:
        self._server = psutil.Process(pid)
        self._pieces = 0

    def count_piece(self) -> None:
        self._pieces += 1
        if self._pieces == PIECES:
            for process in [*self._server.children(recursive=True), self._server]:
                process.kill()


def test_streams_of_killed_vllms_go_on(program: str, up: Callable[..., Up]) -> None:
    fleet = up(**spec(program), replicas=2)
    endpoint = fleet.ready(2, STARTS_WITHIN)
    undisturbed = asyncio.run(read_streams(endpoint, SEEDS, lambda: None))
    equal = 0
    for number in tqdm(range(KILLS), desc="kills"):
        killer = Killer(fleet.engine_pids()[number % 2])
        texts = asyncio.run(read_streams(endpoint, SEEDS, killer.count_piece))
        equal += sum(text == twin for text, twin in zip(texts, undisturbed, strict=True))
        assert fleet.ready(2, STARTS_WITHIN) == endpoint
    continued = asyncio.run(count_continued(endpoint, "broken"))
    print(f"{KILLS} kills: {continued:.0f} streams went on elsewhere, {equal} of {KILLS * len(SEEDS)} texts were equal")
    assert continued >= KILLS
    assert fleet.interrupt() == 0
