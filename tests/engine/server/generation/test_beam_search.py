"""Beam search on the wire. Of the scripted model each token is followed by the script, or by one of less likely others.

So the best answer is the script, and the second best differs from it in one token.
"""

import asyncio
from typing import Any

import pytest

from paternoster_engine.model.tokenizer import Tokenizer

BEAMS = {"use_beam_search": True, "n": 2}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


async def _post(server: Any, path: str, **body: Any) -> dict[str, Any]:
    response = await server.client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_chat(serve: Any) -> None:
    async with serve("one two three") as server:
        answer = await _post(server, "chat/completions", **CHAT, **BEAMS, max_tokens=3)
        first, second = answer["choices"]
        assert first["message"]["content"] == "one two three"
        assert second["message"]["content"] != first["message"]["content"]
        assert [(c["index"], c["finish_reason"], c["logprobs"]) for c in (first, second)] == [
            (0, "length", None), (1, "length", None),
        ]  # fmt: skip
        assert answer["usage"]["completion_tokens"] == 6


async def test_the_end_of_the_text_ends_an_answer_and_not_the_search(serve: Any) -> None:
    async with serve("one two") as server:
        answer = await _post(server, "completions", prompt="Hi", use_beam_search=True, best_of=3, max_tokens=9)
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("one two", "stop")
        # All three that were found count.
        assert answer["usage"]["completion_tokens"] > 2 * 3
        soon = {"prompt": "Hi", "use_beam_search": True, "n": 2, "max_tokens": 9, "early_stopping": True}
        choices = (await _post(server, "completions", **soon))["choices"]
        assert {choice["finish_reason"] for choice in choices} == {"stop"}


async def test_each_prompt_is_a_search(serve: Any) -> None:
    async with serve("one two three") as server:
        body = {"prompt": ["a", "b b b"], **BEAMS, "max_tokens": 2, "echo": True}
        answer = await _post(server, "completions", **body)
        texts = [choice["text"] for choice in answer["choices"]]
        assert [texts[0], texts[2]] == ["aone two", "b b bone two"]
        assert len(set(texts)) == 4
        counts = {"prompt_tokens": 4, "completion_tokens": 8, "total_tokens": 12}
        assert answer["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": 0}}


async def test_logprobs(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve("one two three") as server:
        best = tokenizer.encode("one two three")[:2]
        body = {"prompt": "Hi", **BEAMS, "max_tokens": 2, "logprobs": 1}
        first, second = (await _post(server, "completions", **body))["choices"]
        assert first["logprobs"]["tokens"] == ["one", " two"]
        assert first["logprobs"]["token_logprobs"] == [-0.5, -0.5]
        assert sorted(second["logprobs"]["token_logprobs"]) == [-1.5, -0.5]
        assert first["logprobs"]["top_logprobs"] == [{tokenizer.decode([token]): -0.5} for token in best]
        assert sorted(len(top) for top in second["logprobs"]["top_logprobs"]) == [1, 2]
        chat = await _post(server, "chat/completions", **CHAT, **BEAMS, max_tokens=2, logprobs=True, top_logprobs=20)
        content = chat["choices"][0]["logprobs"]["content"]
        assert [len(entry["top_logprobs"]) for entry in content] == [20, 20]


async def test_prompt_logprobs(serve: Any) -> None:
    async with serve("one two") as server:
        body = {"prompt": "a b c", **BEAMS, "max_tokens": 2, "prompt_logprobs": 1}
        choices = (await _post(server, "completions", **body))["choices"]
        assert [len(choice["prompt_logprobs"]) for choice in choices] == [3, 3]


@pytest.mark.parametrize(
    ("path", "change", "param", "text"),
    [
        ("chat/completions", {"stream": True}, "stream", "send false"),
        ("chat/completions", {"temperature": 0.5}, "temperature", "send 0.0 or 1.0"),
        ("completions", {"top_p": 0.5}, "top_p", "not allowed with use_beam_search=true"),
        ("completions", {"top_k": 5}, "top_k", "send 0 or -1"),
        ("completions", {"min_p": 0.5}, "min_p", "send 0.0"),
        ("completions", {"seed": 1}, "seed", "send null"),
        ("completions", {"presence_penalty": 1}, "presence_penalty", "send 0.0"),
        ("completions", {"frequency_penalty": 1}, "frequency_penalty", "send 0.0"),
        ("completions", {"repetition_penalty": 1.1}, "repetition_penalty", "send 1.0"),
        ("completions", {"stop": "x"}, "stop", "got ['x']"),
        ("completions", {"n": 1}, "n", "at least 2"),
        ("completions", {"n": 5}, None, "at most 4 sequences"),
        ("completions", {"length_penalty": 11}, "length_penalty", "less than or equal to 10"),
        ("completions", {"early_stopping": "soon"}, "early_stopping", "never"),
        ("completions", {"use_beam_search": False, "length_penalty": 2}, "length_penalty", "use_beam_search=false"),
        ("completions", {"use_beam_search": False, "early_stopping": True}, "early_stopping", "send false"),
    ],
)
async def test_what_does_not_go_together(
    serve: Any, path: str, change: dict[str, Any], param: str | None, text: str
) -> None:
    async with serve() as server:
        body = (CHAT if path.startswith("chat") else {"prompt": "Hi"}) | BEAMS | change
        response = await server.client.post(f"/v1/{path}", json=body)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert (error["param"] or "").startswith(param or "")
        assert text in error["message"]


async def test_a_search_that_can_never_fit_is_refused(serve: Any) -> None:
    async with serve(num_blocks=16, block_size=8) as server:
        body = {"prompt": [1] * 20, **BEAMS, "n": 4, "max_tokens": 30}
        response = await server.client.post("/v1/completions", json=body)
        assert response.status_code == 400
        assert "fewer sequences" in response.json()["error"]["message"]


async def test_a_search_whose_client_leaves_frees_its_blocks(serve: Any) -> None:
    async with serve("one two three", paced=True) as server:
        body = {"prompt": "Hi", **BEAMS, "max_tokens": 100, "ignore_eos": True}
        asking = asyncio.create_task(server.client.post("/v1/completions", json=body))
        while len(server.loop.engine.scheduler.running) < 2:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        while server.loop.engine.scheduler.has_work:
            await asyncio.sleep(0.01)
        assert await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.pool.num_used) == 0
        finished = await server.loop.call_in_loop(lambda: dict(server.loop.engine.scheduler.counters.finished))
        assert finished == {"abort": 1}


async def test_a_step_that_fails_ends_the_search_once(serve: Any) -> None:
    async with serve("one two three", broken_steps=[3]) as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", **BEAMS, "max_tokens": 20})
        assert response.status_code == 500
        finished = await server.loop.call_in_loop(lambda: dict(server.loop.engine.scheduler.counters.finished))
        assert finished == {"error": 1}
        await server.loop.call_in_loop(server.loop.engine.scheduler.check_integrity)


async def test_searches_beside_others(serve: Any) -> None:
    """Searches wait for slots for all their beams, and others run in between."""
    async with serve("one two three") as server:
        bodies = [{"prompt": "Hi", **BEAMS, "n": 2 + i % 3, "max_tokens": 8} for i in range(4)]
        bodies += [{"prompt": "Hi", "max_tokens": 8, "temperature": 0} for _ in range(4)]
        answers = await asyncio.gather(*(_post(server, "completions", **body) for body in bodies))
        assert {answer["choices"][0]["text"] for answer in answers} == {"one two three"}
        assert [len(answer["choices"]) for answer in answers] == [2, 3, 4, 2, 1, 1, 1, 1]
