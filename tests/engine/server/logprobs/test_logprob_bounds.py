"""How many log probabilities one call may ask for, and what its refusal says."""

from typing import Any

import pytest

from paternoster_engine.server.openai import prompts

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
MOST = 2000
"""In place of what one call may have."""
ROOM = {"max_model_len": 1024, "num_blocks": 512}


@pytest.fixture(autouse=True)
def _fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_CALL_LOGPROBS", MOST)
    monkeypatch.setattr(prompts, "LEAST_ROOM", 50)


@pytest.mark.parametrize(
    ("path", "body", "param", "count"),
    [
        # Each prompt's tokens, times the others and itself, for each choice that has them.
        ("completions", {"prompt": [[5] * 50] * 2, "prompt_logprobs": 20}, "prompt_logprobs", 2100),
        ("completions", {"prompt": [5] * 50, "prompt_logprobs": 20, "n": 2}, "prompt_logprobs", 2100),
        ("completions", {"prompt": [5] * 100, "max_tokens": 1, "echo": True, "logprobs": 19}, "logprobs", 2020),
        ("completions", {"prompt": [5], "max_tokens": 100, "logprobs": 20}, "logprobs", 2100),
        ("completions", {"prompt": [5], "max_tokens": 100, "logprobs": 4, "n": 3, "best_of": 5}, "logprobs", 2500),
        # Both together.
        ("completions", {"prompt": [5] * 60, "max_tokens": 80, "logprobs": 9, "prompt_logprobs": 20}, "logprobs", 2060),
        ("chat/completions", CHAT | {"max_tokens": 101, "logprobs": True, "top_logprobs": 19}, "top_logprobs", 2020),
        ("chat/completions", CHAT | {"max_tokens": 501, "logprobs": True, "n": 4}, "logprobs", 2004),
        ("chat/completions", CHAT | {"logprobs": True, "top_logprobs": 20, "n": 4}, "top_logprobs", None),
    ],
)  # fmt: skip
async def test_more_is_refused(serve: Any, path: str, body: dict[str, Any], param: str, count: int | None) -> None:
    async with serve(**ROOM) as server:
        for stream in [False] if "prompt_logprobs" in body or "best_of" in body else [False, True]:
            response = await server.client.post(f"/v1/{path}", json=body | {"stream": stream})
            assert response.status_code == 400, response.text
            error = response.json()["error"]
            assert error["param"] == param
            assert error["message"].startswith(f"{param}: ")
            assert f"of at most {MOST}" in error["message"]
            assert count is None or f" {count} " in error["message"]
            assert f"(got {body.get(param)})" in error["message"].replace("true", "True")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", {"prompt": [[5] * 47] * 2, "prompt_logprobs": 20, "max_tokens": 1}),
        ("completions", {"prompt": [5], "max_tokens": 95, "logprobs": 20}),
        ("chat/completions", CHAT | {"max_tokens": 500, "logprobs": True, "n": 4}),
        ("chat/completions", CHAT | {"max_tokens": 900, "n": 4}),
    ],
)
async def test_as_many_are_answered(serve: Any, path: str, body: dict[str, Any]) -> None:
    async with serve(**ROOM) as server:
        response = await server.client.post(f"/v1/{path}", json=body)
        assert response.status_code == 200, response.text


async def test_a_chat_without_a_limit_ends_where_no_more_may_be_told(serve: Any) -> None:
    """It ends there as it does where the context ends."""
    async with serve(**ROOM) as server:
        body = CHAT | {"logprobs": True, "top_logprobs": 19, "n": 2, "ignore_eos": True}
        choices = (await server.client.post("/v1/chat/completions", json=body)).json()["choices"]
        assert [len(choice["logprobs"]["content"]) for choice in choices] == [50, 50]
        assert {choice["finish_reason"] for choice in choices} == {"length"}


async def test_responses_are_refused_by_their_own_names(serve: Any) -> None:
    async with serve(**ROOM) as server:
        body = {"input": "Hi", "max_output_tokens": 200, "include": ["message.output_text.logprobs"]}
        response = await server.client.post("/v1/responses", json=body | {"top_logprobs": 20})
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == "top_logprobs"
