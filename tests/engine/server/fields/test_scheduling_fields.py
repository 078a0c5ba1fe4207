"""Fields of a request that the scheduler goes by: ``n``, ``priority``, ``deadline_ms`` and ``user``."""

import asyncio
import json
from typing import Any

import pytest

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_each_choice_of_n_is_told_apart_and_the_prompt_counts_once(serve: Any) -> None:
    async with serve("one two three") as server:
        body = {"prompt": ["a", "b b"], "n": 2, "max_tokens": 2}
        whole = (await server.client.post("/v1/completions", json=body)).json()
        assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [(i, "one two") for i in range(4)]
        counts = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
        assert whole["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": 0}}


async def test_a_stream_of_n_opens_and_closes_each_choice(serve: Any) -> None:
    async with serve("one two") as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | {"n": 3, "stream": True})
        frames = [json.loads(event[6:]) for event in response.text.split("\n\n")[:-2]]
        choices = [choice for frame in frames for choice in frame["choices"]]
        for index in range(3):
            own = [choice for choice in choices if choice["index"] == index]
            assert own[0]["delta"] == {"role": "assistant", "content": ""}
            assert "".join(choice["delta"]["content"] for choice in own) == "one two"
            assert own[-1]["finish_reason"] == "stop"


async def test_choices_have_seeds_of_their_own_and_share_the_prompt(serve: Any) -> None:
    async with serve("one two") as server:
        scheduler = server.loop.engine.scheduler
        added = _spy(server)
        body = {"prompt": [5] * 40, "n": 4, "seed": 7, "max_tokens": 2}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
        assert [request.seed for request in added] == [7, 8, 9, 10]
        counters = scheduler.counters
        # 40 tokens of the first, of each other the last one alone; and a token each.
        assert counters.computed_tokens == 40 + 3 + 4


def _spy(server: Any) -> list[Any]:
    """Requests that the scheduler takes from now on."""
    scheduler, added = server.loop.engine.scheduler, []
    add = scheduler.add
    scheduler.add = lambda *requests, **more: (added.extend(requests), add(*requests, **more))[1]
    return added


async def test_priority_goes_to_an_engine_that_has_it(serve: Any) -> None:
    async with serve("one two three four", order="priority", max_num_seqs=1) as server:
        added = _spy(server)
        server.runner.gate.clear()

        def start_request(priority: int) -> asyncio.Task[Any]:
            body = {"prompt": "a", "priority": priority, "max_tokens": 3}
            return asyncio.create_task(server.client.post("/v1/completions", json=body))

        calls = [start_request(0)]
        await asyncio.to_thread(server.runner.entered.wait)
        calls += [start_request(5), start_request(1)]
        # They wait in the inbox until the step is over.
        while server.loop._inbox.qsize() < 2:
            await asyncio.sleep(0.001)
        server.runner.gate.set()
        assert {response.status_code for response in await asyncio.gather(*calls)} == {200}
        served = sorted(added, key=lambda request: request.first_scheduled)
        assert [request.spec.priority for request in served] == [0, 1, 5]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_that_passes_is_a_504_and_no_answer(serve: Any, stream: bool) -> None:
    now = [0.0]
    async with serve(max_num_seqs=1, clock=lambda: now[0]) as server:
        server.runner.gate.clear()
        first = asyncio.create_task(server.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}))
        await asyncio.to_thread(server.runner.entered.wait)
        body = {"prompt": "b", "deadline_ms": 5000, "stream": stream}
        late = asyncio.create_task(server.client.post("/v1/completions", json=body))
        while server.loop._inbox.qsize() < 1:
            await asyncio.sleep(0.001)
        now[0] = 5.0
        server.runner.gate.set()
        response = await late
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"]) == (504, "DeadlineExceededError", "deadline_ms")
        assert response.headers["x-should-retry"] == "false"
        assert (await first).status_code == 200
        counters = await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.counters)
        assert counters.finished == {"length": 1, "timeout": 1}
        assert counters.prompt_tokens == 1, "the late one was never computed"


async def test_a_tenant_over_its_rate_is_told_when_to_come_back(serve: Any) -> None:
    now = [100.0]
    async with serve(tenant_tokens_per_second=2.0, tenant_token_burst=4.0, clock=lambda: now[0]) as server:
        body = {"prompt": [1] * 10, "max_tokens": 1}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
        now[0] += 0.25
        refused = await server.client.post("/v1/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "4")
        assert (refused.json()["error"]["type"], refused.json()["error"]["param"]) == ("RateLimitError", None)
        named = await server.client.post("/v1/completions", json=body | {"user": "bob"})
        assert named.status_code == 429, "a body names no tenant"
        now[0] += 4
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200


async def test_a_tenant_over_its_part_of_the_queue_gets_429(serve: Any) -> None:
    async with serve(max_queued_per_tenant=1) as server:
        body = {"prompt": "a", "max_tokens": 1}
        calls = (server.client.post("/v1/completions", json=body) for _ in range(3))
        accepted, refused = await server.submitted_at_once(*calls)
        assert (accepted.status_code, refused.status_code, refused.headers["retry-after"]) == (200, 429, "1")
        assert not await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.has_work)


@pytest.mark.parametrize(
    ("change", "param", "text"),
    [
        ({"stop_token_ids": [10**6]}, "stop_token_ids", "token id 1000000 must be below"),
        ({"top_k": 2**31}, "top_k", "less than 2147483648"),
        ({"deadline_ms": 10**400}, "deadline_ms", "less than"),
    ],
)
async def test_a_number_that_no_step_could_take_is_refused(
    serve: Any, change: dict[str, Any], param: str, text: str
) -> None:
    async with serve() as server:
        response = await server.client.post("/v1/completions", json={"prompt": "a", "min_tokens": 1} | change)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param
        assert text in response.json()["error"]["message"]
