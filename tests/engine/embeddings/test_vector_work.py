"""Calls for vectors among others: the queue, shares, quotas, deadlines, failures, and clients that leave."""

import asyncio
from typing import Any

import httpx
import pytest

from paternoster_contract.access.identity import HEADER, Identity
from paternoster_engine.server.access.identity import TenantRules

URL = "/v1/embeddings"


async def embed(client: httpx.AsyncClient, count: int, **more: Any) -> httpx.Response:
    return await client.post(URL, json={"input": [[5, 6]] * count, **more}, timeout=60)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_call_of_many_texts_needs_no_room_for_all_in_the_queue(serve):
    async with serve(gated=True, max_num_seqs=4, max_queued_requests=10) as server:
        answer = await embed(server.client, 100)
        counters = server.loop.engine.scheduler.counters
    assert [item["embedding"] for item in answer.json()["data"]] == [[2.0, 1.0]] * 100
    assert max(map(len, server.runner.steps)) == 4
    assert len(server.runner.steps) <= 100 // 4 + 5, "steps are not full"
    assert counters.rejected.total() == 0


async def test_a_short_call_is_not_behind_all_of_a_long_one(serve):
    async with serve(gated=True, max_num_seqs=4) as server:
        server.runner.gate.clear()
        long = asyncio.create_task(embed(server.client, 100))
        await until(server.runner.entered.is_set)
        short = asyncio.create_task(embed(server.client, 1))
        await until(lambda: server.loop._inbox.qsize() == 1)
        scheduler = server.loop.engine.scheduler
        before = len(scheduler.waiting)
        server.runner.gate.set()
        await asyncio.gather(long, short)
        names = [name for step in server.runner.steps for name in step]
        own = names[0].rpartition("-")[0]
        (place,) = [index for index, name in enumerate(names) if not name.startswith(own)]
    assert before <= 8
    assert place < 20


async def test_a_full_queue_refuses_a_call(serve):
    async with serve(gated=True, max_num_seqs=1, max_queued_requests=2) as server:
        server.runner.gate.clear()
        first = asyncio.create_task(embed(server.client, 2))
        await until(server.runner.entered.is_set)
        # The engine's thread takes them after the step: one joins the text that waits, and then there is no room.
        others = []
        for count in (1, 2):
            others.append(asyncio.create_task(embed(server.client, 1)))
            await until(lambda count=count: server.loop._inbox.qsize() == count)
        server.runner.gate.set()
        *answers, refused = await asyncio.gather(first, *others)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert [answer.status_code for answer in answers] == [200, 200]


async def test_a_client_that_leaves_takes_its_texts_along(serve):
    async with serve(gated=True, max_num_seqs=2) as server:
        server.runner.gate.clear()
        call = asyncio.create_task(embed(server.client, 50))
        await until(server.runner.entered.is_set)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        server.runner.gate.set()
        scheduler = server.loop.engine.scheduler
        await until(lambda: not scheduler.has_work)
        assert scheduler.counters.requests <= 4
        assert (await embed(server.client, 1)).status_code == 200
        scheduler.check_integrity()


async def test_a_deadline(serve):
    async with serve(gated=True, max_num_seqs=1) as server:
        server.runner.gate.clear()
        first = asyncio.create_task(embed(server.client, 1))
        await until(server.runner.entered.is_set)
        late = asyncio.create_task(embed(server.client, 1, deadline_ms=1))
        await until(lambda: server.loop._inbox.qsize() == 1)
        await asyncio.sleep(0.01)
        server.runner.gate.set()
        answers = await asyncio.gather(first, late)
    assert [answer.status_code for answer in answers] == [200, 504]


async def test_a_step_that_fails(serve):
    async with serve(gated=True, max_num_seqs=2) as server:
        server.runner.broken = True
        failed = await embed(server.client, 5)
        server.runner.broken = False
        after = await embed(server.client, 5)
    assert (failed.status_code, after.status_code) == (500, 200)


async def test_quota_of_a_key_counts_a_calls_tokens(serve):
    """A call is taken as a whole, and what it took holds the next one back."""
    rules = TenantRules(believes_header=True)
    who = Identity(tenant="team", tokens_per_second=1, token_burst=10)
    headers = {HEADER: who.encode()}
    async with serve(gated=True, max_num_seqs=2, tenants=rules) as server:
        body = {"input": [[5, 6]] * 20}
        first = await server.client.post(URL, json=body, headers=headers)
        second = await server.client.post(URL, json=body, headers=headers)
        other = await server.client.post(URL, json=body)
    assert (first.status_code, second.status_code, other.status_code) == (200, 429, 200)
    assert int(second.headers["Retry-After"]) >= 29


async def test_calls_at_once_are_taken_with_all_that_they_have_yet_to_queue(serve):
    """Each queues few of its texts at a time: what follows is reserved when it begins, and returned when it ends."""
    rules = TenantRules(believes_header=True)
    headers = {HEADER: Identity(tenant="team", tokens_per_second=0.001, token_burst=60).encode()}
    async with serve(gated=True, max_num_seqs=2, tenants=rules) as server:
        server.runner.gate.clear()
        body = {"input": [[5, 6]] * 40}
        first = asyncio.create_task(server.client.post(URL, json=body, headers=headers))
        await until(server.runner.entered.is_set)
        others = [asyncio.create_task(server.client.post(URL, json=body, headers=headers)) for _ in range(10)]
        await until(lambda: server.loop._inbox.qsize() == len(others))
        first.cancel()
        server.runner.gate.set()
        statuses = [answer.status_code for answer in await asyncio.gather(*others)]
        quota = server.loop.engine.scheduler.lanes[0].validation.quota
        await until(lambda: not server.loop.engine.scheduler.has_work and not quota._reservations)
        level = await server.loop.call_in_loop(lambda: quota._buckets["team"].level)
    assert statuses == [429] * len(others)
    assert 60 - 2 * 8 <= level < 60, "a call that its client left is charged for the texts that were computed"


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/score", "/v2/embed", URL])
async def test_draining_and_unknown_models(serve, path):
    bodies = {
        "/v1/rerank": {"query": "a", "documents": ["b"]},
        "/v1/score": {"text_1": "a", "text_2": "b"},
        "/v2/embed": {"texts": ["a"]},
        URL: {"input": "a"},
    }
    async with serve(gated=True) as server:
        unknown = await server.client.post(path, json={**bodies[path], "model": "another"})
        server.state.drain()
        draining = await server.client.post(path, json=bodies[path])
    assert (unknown.status_code, draining.status_code) == (404, 503)
