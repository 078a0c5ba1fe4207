"""Two replicas, streams under way, one ends by SIGKILL or by a scale-down: every stream is what it would have been."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence

import aiohttp
import pytest
from tests.fleet.fleet import Up, children, command_line, wait_for

pytestmark = pytest.mark.slow

ENGINE = {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "96Mi", "batchInvariant": True}
SEEDS = range(6)
TOKENS, LONG = 96, 384
"""Tokens of an answer, and of one that takes longer than from a changed manifest to a replica's end."""
QUESTION = [{"role": "user", "content": "Tell me a long story about a lift that never stops."}]


async def read_stream(
    session: aiohttp.ClientSession, endpoint: str, seed: int, on_piece: Callable[[], None], tokens: int = TOKENS
) -> str:
    """The text of one answer."""
    body = {
        "model": "smollm2", "messages": QUESTION, "seed": seed, "max_tokens": tokens, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    text, counted = "", 0
    async with session.post(f"{endpoint}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            on_piece()
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                counted = chunk["usage"]["completion_tokens"] if chunk.get("usage") else counted
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    assert counted == tokens
    return text


async def read_whole(session: aiohttp.ClientSession, endpoint: str, seed: int, tokens: int) -> str:
    """The text of the same answer, not streamed."""
    body = {"model": "smollm2", "messages": QUESTION, "seed": seed, "max_tokens": tokens, "ignore_eos": True}
    async with session.post(f"{endpoint}/v1/chat/completions", json=body) as response:
        answer = json.loads(await response.read())
        assert response.status == 200, answer
    assert answer["usage"]["completion_tokens"] == tokens
    return str(answer["choices"][0]["message"]["content"])


async def read_streams(endpoint: str, seeds: Sequence[int], on_piece: Callable[[], None]) -> Sequence[str]:
    """Texts of a stream for each seed, read at once."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        return await asyncio.gather(*(read_stream(session, endpoint, seed, on_piece) for seed in seeds))


async def read_all(endpoint: str, on_piece: Callable[[], None], tokens: int = TOKENS) -> Sequence[str]:
    """Texts of six streams and, from the same seeds, of two whole answers."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=240)) as session:
        streams = [read_stream(session, endpoint, seed, on_piece, tokens) for seed in SEEDS]
        return await asyncio.gather(*streams, *(read_whole(session, endpoint, seed, tokens) for seed in SEEDS[:2]))


async def count_continued(endpoint: str, reason: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{endpoint}/metrics") as response:
        text = await response.text()
    found = re.findall(rf'^paternoster_gateway_continued_streams_total\{{.*reason="{reason}"\}} (\S+)$', text, re.M)
    return sum(map(float, found))


def after_some(pieces_of_each: int, end: Callable[[], None]) -> Callable[[], None]:
    """What calls ``end`` once, when streams have had that many pieces on average."""
    pieces = 0

    def count_piece() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == pieces_of_each * len(SEEDS):
            end()

    return count_piece


def has_both_replicas(fleet: Up) -> bool:
    """Whether two engines run, and the gateway routes to these two."""
    engines = (line for pid in children(fleet.process.pid) if "serve" in (line := command_line(pid)))
    ports = sorted(line[line.index("--port") + 1] for line in engines)
    return len(ports) == 2 and ports == sorted(url.rpartition(":")[2] for url in fleet.replicas().values())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Fleet of two replicas; what a test ends comes again before the next one."""
    fleet = Up(tmp_path_factory.mktemp("fleet"), replicas=2, engine=ENGINE)
    fleet.ready(2)
    try:
        yield fleet
        assert fleet.interrupt() == 0
    finally:
        fleet.close()


@pytest.fixture
def endpoint(fleet: Up) -> str:
    fleet.write(replicas=2, engine=ENGINE)
    endpoint = fleet.ready(2)
    wait_for(lambda: has_both_replicas(fleet), "two replicas that the gateway routes to")
    return endpoint


@pytest.fixture(scope="module")
def undisturbed(fleet: Up) -> Sequence[str]:
    """Texts of all answers from replicas that go on."""
    texts = asyncio.run(read_all(fleet.ready(2), lambda: None))
    assert len(set(texts)) == len(SEEDS)  # whole answers are equal to streams
    return texts


def test_streams_of_a_killed_replica_are_their_undisturbed_twins(
    fleet: Up, undisturbed: Sequence[str], endpoint: str
) -> None:
    kill = after_some(30, lambda: os.kill(fleet.engine_pids()[0], signal.SIGKILL))
    assert asyncio.run(read_all(endpoint, kill)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "broken")) >= 1


def test_engine_that_its_admin_api_drains_hands_its_streams_over(
    fleet: Up, undisturbed: Sequence[str], endpoint: str
) -> None:
    before = asyncio.run(count_continued(endpoint, "drained"))
    drain = after_some(10, lambda: fleet.drain_engine(fleet.engine_pids()[0]))
    assert asyncio.run(read_all(endpoint, drain)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "drained")) >= before + 1


def test_replica_that_a_smaller_fleet_loses_hands_its_answers_over(fleet: Up, endpoint: str) -> None:
    undisturbed = asyncio.run(read_all(endpoint, lambda: None, LONG))
    before = asyncio.run(count_continued(endpoint, "drained"))
    shrink = after_some(10, lambda: fleet.write(replicas=1, engine=ENGINE))
    assert asyncio.run(read_all(endpoint, shrink, LONG)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "drained")) >= before + 1
    fleet.ready(1)
