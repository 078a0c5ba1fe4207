"""Thoughts of a real model have as many tokens as their budget, to the token, where tokens are proposed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.slow

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: <think>\n{# </think> #}"
USER = [{"role": "user", "content": "Count: one, two, three, one, two, three, one, two, three, and so on."}]
COMPLETION_FIELDS = {"max_tokens": 48, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def engine(run_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    template: Path = tmp_path_factory.mktemp("templates") / "thinking.jinja"
    template.write_text(TEMPLATE)
    with run_engine("--chat-template", str(template), "--speculative", "ngram") as running:
        yield running


def _ids(answer: httpx.Response, *, stream: bool) -> list[int]:
    assert answer.status_code == 200, answer.text
    if not stream:
        ids: list[int] = answer.json()["choices"][0]["token_ids"]
        return ids
    frames = [json.loads(event[6:]) for event in answer.text.split("\n\n") if event and event != "data: [DONE]"]
    return [token for frame in frames for choice in frame["choices"] for token in choice.get("token_ids") or []]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("budget", [0, 5, 30])
def test_thoughts_end_at_their_budget(engine: Any, tokenizer: Any, budget: int, stream: bool) -> None:
    end = tokenizer.encode("</think>")
    prompt = f"user: {USER[0]['content']}\nassistant: <think>\n"
    with httpx.Client(base_url=engine.url, timeout=120) as client:
        budget_fields = COMPLETION_FIELDS | {"thinking_token_budget": budget, "stream": stream}
        for path, more in (("chat/completions", {"messages": USER}), ("completions", {"prompt": prompt})):
            ids = _ids(client.post(f"/v1/{path}", json=budget_fields | more), stream=stream)
            assert len(ids) == 48
            assert ids[budget : budget + len(end)] == end, tokenizer.decode(ids)
            assert "</think>" not in tokenizer.decode(ids[:budget])


def test_a_thought_in_the_prompt_counts(engine: Any, tokenizer: Any) -> None:
    begun = "one, two, three"
    spent = len(tokenizer.encode(begun))
    with httpx.Client(base_url=engine.url, timeout=120) as client:
        body = COMPLETION_FIELDS | {"prompt": f"assistant: <think>{begun}", "thinking_token_budget": spent + 3}
        ids = _ids(client.post("/v1/completions", json=body), stream=False)
        end = tokenizer.encode("</think>")
        assert ids[3 : 3 + len(end)] == end, tokenizer.decode(ids)
