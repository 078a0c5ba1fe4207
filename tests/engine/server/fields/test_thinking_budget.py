"""``thinking_token_budget`` of chats, and ``thinking.budget_tokens`` of Messages, reach what chooses tokens."""

from typing import Any

import pytest
from scripted_server import scripted_server
from tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.thinking_budget import ThinkingBudget

USER = [{"role": "user", "content": "x"}]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025}


@pytest.mark.parametrize(
    ("route", "body", "thinks", "limit"),
    [
        (CHAT, {"thinking_token_budget": 0}, True, 0),
        (CHAT, {"thinking_token_budget": 7, "stream": True}, True, 7),
        (CHAT, {"thinking_token_budget": 7, "response_format": {"type": "json_object"}}, True, 7),
        (CHAT, {}, True, None),
        (CHAT, {"thinking_token_budget": 7}, False, None),
        (MESSAGES, THINKING, True, 1024),
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
