"""A limit of output tokens beyond what the context leaves: agents send one number, whatever model they call."""

from typing import Any

import pytest

WORDS = "one two three four"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "ignore_eos": True}
LONG = {"messages": [{"role": "user", "content": "word " * 128}]}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_has_what_the_context_leaves(serve: Any, field: str, stream: bool) -> None:
    """Zed, OpenCode, Pi and Qwen Code send 13,000 to 65,535 (vllm-project/vllm#42474)."""
    async with serve(WORDS * 50, max_model_len=64) as server:
        body = CHAT | {field: 32_000, "stream": stream}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        if stream:
            assert '"finish_reason":"length"' in response.text
        else:
            answer = response.json()
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["total_tokens"] == 64


async def test_a_response_has_what_the_context_leaves(serve: Any) -> None:
    async with serve(WORDS * 50, max_model_len=64) as server:
        body = {"input": "Hi", "max_output_tokens": 32_000, "ignore_eos": True}
        answer = (await server.client.post("/v1/responses", json=body)).json()
        assert answer["status"] == "incomplete"
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
        assert answer["max_output_tokens"] == 32_000
        assert answer["usage"]["total_tokens"] == 64


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 1}, {"max_tokens": 32_000}])
async def test_a_prompt_that_leaves_nothing_is_refused(serve: Any, limit: dict[str, int]) -> None:
    async with serve(WORDS) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | LONG | limit)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")


async def test_tokens_that_must_come_and_do_not_fit_are_refused(serve: Any) -> None:
    async with serve(WORDS) as server:
        body = CHAT | {"max_tokens": 32_000, "min_tokens": 16_000}
        error = (await server.client.post("/v1/chat/completions", json=body)).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "16000 of output" in error["message"]


async def test_a_completion_is_refused(serve: Any) -> None:
    """The OpenAI API and vLLM refuse it, too: its clients send numbers that they mean."""
    async with serve(WORDS) as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 32_000})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
