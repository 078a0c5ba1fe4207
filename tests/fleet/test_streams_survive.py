"""Two replicas, streams under way, one ends by SIGKILL or by a scale-down: every stream is what it would have been."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Sequence

import aiohttp
import pytest
from tests.fleet.fleet import Up

pytestmark = pytest.mark.slow

SEEDS = range(6)
QUESTION = [{"role": "user", "content": "Tell me a long story about a lift that never stops."}]


async def read_stream(session: aiohttp.ClientSession, endpoint: str, seed: int, on_piece: Callable[[], None]) -> str:
    """The text of one answer, of 96 tokens."""
    body = {
        "model": "smollm2", "messages": QUESTION, "seed": seed, "max_tokens": 96, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    text, tokens = "", 0
    async with session.post(f"{endpoint}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            on_piece()
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                tokens = chunk["usage"]["completion_tokens"] if chunk.get("usage") else tokens
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    assert tokens == 96
    return text


async def read_whole(session: aiohttp.ClientSession, endpoint: str, seed: int) -> str:
    """The text of the same answer, not streamed."""
    body = {"model": "smollm2", "messages": QUESTION, "seed": seed, "max_tokens": 96, "ignore_eos": True}
    async with session.post(f"{endpoint}/v1/chat/completions", json=body) as response:
        answer = json.loads(await response.read())
        assert response.status == 200, answer
    assert answer["usage"]["completion_tokens"] == 96
    return str(answer["choices"][0]["message"]["content"])


async def read_streams(endpoint: str, seeds: Sequence[int], on_piece: Callable[[], None]) -> Sequence[str]:
    """Texts of a stream for each seed, read at once."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        return await asyncio.gather(*(read_stream(session, endpoint, seed, on_piece) for seed in seeds))


async def read_all(endpoint: str, on_piece: Callable[[], None]) -> Sequence[str]:
    """Texts of six streams and, from the same seeds, of two whole answers."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=240)) as session:
        streams = [read_stream(session, endpoint, seed, on_piece) for seed in SEEDS]
        return await asyncio.gather(*streams, *(read_whole(session, endpoint, seed) for seed in SEEDS[:2]))


async def count_continued(endpoint: str, reason: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{endpoint}/metrics") as response:
        text = await response.text()
    found = re.findall(rf'^paternoster_gateway_continued_streams_total\{{.*reason="{reason}"\}} (\S+)$', text, re.M)
    return sum(map(float, found))


def test_streams_of_a_killed_replica_are_their_undisturbed_twins(up: Callable[..., Up]) -> None:
    engine = {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "96Mi", "batchInvariant": True}
    fleet = up(replicas=2, engine=engine)
    endpoint = fleet.ready(2)
    undisturbed = asyncio.run(read_all(endpoint, lambda: None))
    assert len(set(undisturbed)) == len(SEEDS)  # whole answers are equal to streams
    pieces = 0

    def kill_after_some() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 30 * len(SEEDS):
            os.kill(fleet.engine_pids()[0], signal.SIGKILL)

    assert asyncio.run(read_all(endpoint, kill_after_some)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "broken")) >= 1
    assert fleet.interrupt() == 0


def test_replica_that_a_smaller_fleet_loses_hands_its_answers_over(up: Callable[..., Up]) -> None:
    engine = {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "96Mi", "batchInvariant": True}
    fleet = up(replicas=2, engine=engine)
    endpoint = fleet.ready(2)
    undisturbed = asyncio.run(read_all(endpoint, lambda: None))
    pieces = 0

    def shrink_after_some() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 10 * len(SEEDS):
            fleet.write(replicas=1, engine=engine)

    assert asyncio.run(read_all(endpoint, shrink_after_some)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "drained")) >= 1
    fleet.ready(1)
    assert fleet.interrupt() == 0


def test_engine_that_its_admin_api_drains_hands_its_streams_over(up: Callable[..., Up]) -> None:
    engine = {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "96Mi", "batchInvariant": True}
    fleet = up(replicas=2, engine=engine)
    endpoint = fleet.ready(2)
    undisturbed = asyncio.run(read_all(endpoint, lambda: None))
    pieces = 0

    def drain_after_some() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 10 * len(SEEDS):
            fleet.drain_engine(fleet.engine_pids()[0])

    assert asyncio.run(read_all(endpoint, drain_after_some)) == undisturbed
    assert asyncio.run(count_continued(endpoint, "drained")) >= 1
    assert fleet.interrupt() == 0
