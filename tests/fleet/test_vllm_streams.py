"""Two real vLLM behind one gateway, of which one is killed under streams: each stream goes on at the other one.

``PATERNOSTER_KILLS`` is how often in each test, 2 by default; another vLLM takes a minute or more to start.
"""

import asyncio
import os
import random
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import aiohttp
import openai
import psutil
import pytest
from tests.fleet.fleet import Up, find_flag, wait_for
from tests.fleet.test_streams_survive import count_continued, read_streams
from tests.fleet.test_vllm import RUNNING, SLOTS, STARTS_WITHIN, complete, read, spec
from tests.fleet.test_vllm import program as program
from tests.operator.vllm_plugin.agents_calls import CALLS, FLAGS, AgentsCall, read_events
from tqdm import tqdm

KILLS = int(os.environ.get("PATERNOSTER_KILLS", "2"))
SEEDS = range(4)
PIECES = 20 * len(SEEDS)
"""Pieces of all streams before a kill."""
AGENTS_PIECES = range(5, 250)
"""Pieces of agents' streams before a kill, of which one number is drawn for each."""

INDEXED = "paternoster_gateway_replicas_indexed 2.0"

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
    """Kills a vLLM after ``pieces`` of all streams: its engine's processes and, unless ``core_alone``, its server."""

    def __init__(self, fleet: Up, pieces: int = PIECES, *, core_alone: bool = False) -> None:
        self._fleet = fleet
        self._pieces = pieces
        self._core_alone = core_alone

    @property
    def has_killed(self) -> bool:
        return self._pieces <= 0

    def count_piece(self) -> None:
        self._pieces -= 1
        if self._pieces == 0:
            server = find_busiest(self._fleet)
            for process in [*server.children(recursive=True), *([] if self._core_alone else [server])]:
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


def read_text(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())


async def read_call(
    session: aiohttp.ClientSession, endpoint: str, call: AgentsCall, on_piece: Callable[[], None]
) -> bytes:
    """Every byte of one stream."""
    answer = b""
    async with session.post(endpoint + call.path, json={"model": "smollm2", **call.body}) as response:
        assert response.status == 200, await response.text()
        async for piece in response.content.iter_any():
            answer += piece
            on_piece()
    return answer


async def find_faults(endpoint: str, on_piece: Callable[[], None]) -> list[str]:
    """Reasons why answers are not whole and valid, of a stream of each kind, read at once."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1200)) as session:
        reads = [read_call(session, endpoint, call, on_piece) for call in CALLS.values()]
        answers = await asyncio.gather(*reads, return_exceptions=True)
    faults = []
    for (kind, call), answer in zip(CALLS.items(), answers, strict=True):
        try:
            if isinstance(answer, BaseException):
                raise answer
            call.check(read_events(answer))
        except Exception as error:
            faults.append(f"{kind}: {error!r}: {answer!r}")
    return faults


def test_agents_streams_of_killed_vllms_go_on_to_valid_answers(program: str, up: Callable[..., Up]) -> None:
    """Tools, schemas, choices and log probabilities, by chats, completions, Responses and Messages."""
    wanted = spec(program)
    wanted["engine"] |= {"maxNumSeqs": 16, "maxModelLen": 1024}
    wanted["engine"]["runtime"]["args"] += FLAGS
    # A busy machine takes the one that is left out of rotation, too, while it compiles code in its first steps.
    wanted["admission"] = {"holdTimeoutSeconds": 600}
    fleet = up(**{**wanted, "concurrency": {"initial": 16}, "replicas": 2})
    endpoint = fleet.ready(2, STARTS_WITHIN)
    wait_for(lambda: INDEXED in read_text(f"{endpoint}/metrics"), "text chains of both vLLMs")
    faults, kills = asyncio.run(find_faults(endpoint, lambda: None)), 0
    for number in tqdm(range(KILLS), desc="kills"):
        pieces = random.choice(AGENTS_PIECES)
        killer = Killer(fleet, pieces, core_alone=number % 2 == 1)
        faults += asyncio.run(find_faults(endpoint, killer.count_piece))
        kills += killer.has_killed
        assert fleet.ready(2, STARTS_WITHIN) == endpoint
    continued = asyncio.run(count_continued(endpoint, "broken"))
    print(f"{kills} kills under {len(CALLS)} streams each: {continued:.0f} streams went on elsewhere")
    assert not faults, "\n".join(faults)
    assert (kills, continued > 0) == (KILLS, True)
    assert fleet.interrupt() == 0
