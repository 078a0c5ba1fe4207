"""``thinking_token_budget``, and ``thinking.budget_tokens`` of Messages, reach what chooses tokens."""

from typing import Any

import pytest
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.thinking_budget import ThinkingBudget

USER = [{"role": "user", "content": "x"}]
CHAT, MESSAGES, TEXT = "/v1/chat/completions", "/v1/messages", "/v1/completions"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025}


@pytest.mark.parametrize(
    ("route", "body", "thinks", "limit"),
    [
        (CHAT, {"thinking_token_budget": 0}, True, 0),
        (CHAT, {"thinking_token_budget": 7, "stream": True}, True, 7),
        (CHAT, {"thinking_token_budget": 7, "response_format": {"type": "json_object"}}, True, 7),
        (CHAT, {}, True, None),
        (CHAT, {"thinking_token_budget": 7}, False, None),
        (CHAT, {"thinking_token_budget": -1}, True, None),
        (MESSAGES, THINKING, True, 1024),
        (MESSAGES, THINKING | {"stream": True}, True, 1024),
        (MESSAGES, {"thinking": {"type": "adaptive"}, "max_tokens": 9}, True, None),
        (MESSAGES, {"max_tokens": 9}, True, None),
    ],
)
async def test_budgets(tokenizer: Tokenizer, route: str, body: dict[str, Any], thinks: bool, limit: int | None) -> None:
    """A model that does not think keeps within every budget."""
    serve = scripted_server(tokenizer.with_template(QWEN3) if thinks else tokenizer)
    async with serve("one", max_model_len=4096, num_blocks=1024) as server:
        seen, sample = [], server.runner._sample

        def spy(item: Any) -> int | None:
            seen.append(item.request.matcher)
            return sample(item)

        server.runner._sample = spy  # type: ignore[method-assign]
        answer = await server.client.post(route, json={"messages": USER, **body})
        assert answer.status_code == 200, answer.text
        matcher = seen[0]
        assert isinstance(matcher, ThinkingBudget) == (limit is not None)
        if isinstance(matcher, ThinkingBudget):
            assert matcher._limit == limit
            assert tokenizer.decode(matcher._end) == "</think>"
            assert (matcher._inner is not None) == ("response_format" in body)


async def test_not_with_beams(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer.with_template(QWEN3))("one") as server:
        body = {"messages": USER, "thinking_token_budget": 5, "use_beam_search": True, "n": 2, "temperature": 0}
        answer = await server.client.post(CHAT, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "thinking_token_budget")


@pytest.mark.parametrize("as_ids", [False, True])
@pytest.mark.parametrize(
    ("prompt", "begun", "spent"),
    [
        ("ask", False, 0),
        ("ask<think>", True, 0),
        ("ask<think>\n", True, 0),
        ("ask<think>\none two", True, 3),
        ("<think>old</think>said<think>one", True, 1),
        ("<think>old</think>said", False, 0),
        ("<think>" + "one" + " one" * 9, True, 10),
    ],
)
async def test_budgets_of_completions(tokenizer: Tokenizer, prompt: str, begun: bool, spent: int, as_ids: bool) -> None:
    """What the prompt has of the thought counts, too."""
    async with scripted_server(tokenizer.with_template(QWEN3))("one") as server:
        seen, sample = [], server.runner._sample

        def spy(item: Any) -> int | None:
            seen.append(item.request.matcher)
            return sample(item)

        server.runner._sample = spy  # type: ignore[method-assign]
        prompts = [tokenizer.encode(prompt) if as_ids else prompt, tokenizer.encode("other") if as_ids else "other"]
        body = {"prompt": prompts, "thinking_token_budget": 7, "n": 2, "max_tokens": 1}
        answer = await server.client.post(TEXT, json=body)
        assert answer.status_code == 200, answer.text
        found = {(matcher._thinks, matcher._limit) for matcher in seen}
        assert found == {(True if begun else None, max(0, 7 - spent)), (None, 7)}
        assert len({id(matcher) for matcher in seen}) == 4, "each sequence has its own"


@pytest.mark.parametrize(
    ("change", "limited"),
    [({}, True), ({"thinking_token_budget": -1}, False), ({"thinking_token_budget": None}, False)],
)
async def test_no_limit_is_none(tokenizer: Tokenizer, change: dict[str, Any], limited: bool) -> None:
    for thinks in (False, True):
        async with scripted_server(tokenizer.with_template(QWEN3) if thinks else tokenizer)("one") as server:
            body = {"prompt": "x", "thinking_token_budget": 0, "response_format": {"type": "json_object"}, **change}
            answer = await server.client.post(TEXT, json=body)
            assert answer.status_code == (400 if limited and thinks else 200)
            if limited and thinks:
                error = answer.json()["error"]
                assert (error["param"], "response_format" in error["message"]) == ("thinking_token_budget", True)
