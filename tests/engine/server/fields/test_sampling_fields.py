"""What becomes of sampling fields that clients send at the edge of what is allowed."""

from typing import Any

import pytest

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.sampling_params import SamplingParams

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
GOOD: dict[str, dict[str, Any]] = {
    "chat/completions": CHAT,
    "completions": {"prompt": "Hi"},
    "responses": {"input": "Hi"},
    "messages": CHAT | {"max_tokens": 9},
}


async def _params(server: Any, path: str, change: dict[str, Any]) -> SamplingParams:
    """The sampling parameters that reach the scheduler."""
    found: list[SamplingParams] = []
    execute = server.runner.execute

    def watched(batch: Batch) -> StepResult:
        found.extend(item.request.params for item in batch.scheduled)
        return execute(batch)

    server.runner.execute = watched
    response = await server.client.post(f"/v1/{path}", json=GOOD[path] | change)
    assert response.status_code == 200, response.text
    return found[0]


@pytest.mark.parametrize("path", GOOD)
async def test_top_p_0_is_the_likeliest_token(serve: Any, path: str) -> None:
    async with serve() as server:
        for value in (0, 0.0):
            params = await _params(server, path, {"top_p": value, "temperature": 0.8})
            assert (params.greedy, params.top_p) == (True, 0)


@pytest.mark.parametrize(
    ("path", "change", "field", "value"),
    [
        # Clients that always send a seed mean none by -1 (vllm#4531).
        ("chat/completions", {"seed": -1}, "seed", None),
        ("completions", {"seed": -1}, "seed", None),
        ("completions", {"seed": -2}, "seed", -2),
        ("chat/completions", {"seed": 2**63 - 1}, "seed", 2**63 - 1),
        ("chat/completions", {"temperature": 1e-9}, "temperature", 0),
        ("chat/completions", {"temperature": 2}, "temperature", 2),
        ("chat/completions", {"top_k": -1}, "top_k", 0),
        ("chat/completions", {"top_k": 0}, "top_k", 0),
        ("chat/completions", {"min_p": 1}, "min_p", 1),
        ("chat/completions", {"frequency_penalty": -2, "presence_penalty": 2}, "frequency_penalty", -2),
        ("chat/completions", {"stop": []}, "stop", ()),
        ("chat/completions", {"stop": None}, "stop", ()),
        ("chat/completions", {"stop": list("abcde")}, "stop", tuple("abcde")),
        ("chat/completions", {"logprobs": True, "top_logprobs": None}, "logprobs", 0),
        ("chat/completions", {"logprobs": False, "top_logprobs": 0}, "logprobs", None),
        ("completions", {"logprobs": 0}, "logprobs", 0),
        ("chat/completions", {"max_tokens": 3, "max_completion_tokens": 2}, "max_tokens", 2),
    ],
)  # fmt: skip
async def test_values_at_the_edge(serve: Any, path: str, change: dict[str, Any], field: str, value: Any) -> None:
    async with serve() as server:
        assert getattr(await _params(server, path, change), field) == value
