"""An engine whose queue is full: each refused call costs it one refusal, which is what the client gets."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from paternoster_e2e.fleet import Fleet

pytestmark = pytest.mark.timeout(600)

CALLS = 50
LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": True}
"""Longer than the test: nothing of it ends by itself."""


def rejected(fleet: Fleet) -> dict[str, int]:
    """Requests that the engine has refused, by reason."""
    return {
        sample.labels["reason"]: int(sample.value)
        for family in text_string_to_metric_families(fleet.engine_answer("/metrics"))
        for sample in family.samples
        if sample.name == "paternoster_engine_requests_rejected_total"
    }


def load(fleet: Fleet) -> tuple[int, int]:
    """Requests that run, and that wait."""
    stats: dict[str, Any] = json.loads(fleet.engine_answer("/stats"))
    return stats["running"], stats["waiting"]


@asynccontextmanager
async def full(fleet: Fleet, gateway: str, queued: int) -> AsyncIterator[None]:
    """Streams hold the one slot and every place in the queue while the block runs."""
    async with httpx.AsyncClient(base_url=gateway, timeout=600) as client:
        body = LONG | {"model": fleet.name}
        streams: list[asyncio.Task[httpx.Response]] = []

        async def add_streams(count: int) -> None:
            streams.extend(asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(count))
            async with asyncio.timeout(60):
                while await asyncio.to_thread(load, fleet) != (1, len(streams) - 1):
                    await asyncio.sleep(0.2)

        try:
            # One after the other: of all at once, the last would find the queue full before the first one runs.
            await add_streams(1)
            await add_streams(queued)
            yield
            assert not any(stream.done() for stream in streams), "the engine was full all the time"
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)


async def test_each_refusal_reaches_the_engine_once_and_the_client_with_its_time(
    fleet: Fleet, gateway: str, queued: int
) -> None:
    async with full(fleet, gateway, queued), httpx.AsyncClient(base_url=gateway, timeout=120) as client:
        before = rejected(fleet)
        body = {"model": fleet.name, "prompt": "up", "max_tokens": 1}
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(CALLS)))
        after = rejected(fleet)
    assert Counter(answer.status_code for answer in answers) == {503: CALLS}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
    assert sum(after.values()) - sum(before.values()) == CALLS, (before, after)
    # Once the streams' clients are gone, their places are free again.
    assert (await asyncio.to_thread(fleet.chat)).status_code == 200
