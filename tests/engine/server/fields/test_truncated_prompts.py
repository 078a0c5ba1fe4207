"""``truncate_prompt_tokens`` and ``truncation_side`` of chats and completions: what the engine reads and reports."""

import json
from typing import Any

import httpx
import pytest
from tests.engine.server.scripted_server import scripted_server

from paternoster_engine.model.tokenizer import Tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LONG = " ".join(f"w{i}" for i in range(300))
MESSAGES = [{"role": "user", "content": LONG}]
CONTEXT = 128


def _read_answer(answer: httpx.Response, *, stream: bool) -> tuple[list[list[int]], dict[str, Any], str]:
    """Prompts' tokens, the usage, and the text of the first choice."""
    assert answer.status_code == 200, answer.text
    if not stream:
        whole = answer.json()
        bodies = [whole] if "prompt_token_ids" in whole else whole["choices"]
        first = whole["choices"][0]
        text = first["text"] if "text" in first else first["message"]["content"]
        return [body["prompt_token_ids"] for body in bodies], whole["usage"], text
    frames = [json.loads(event[6:]) for event in answer.text.split("\n\n") if event and event != "data: [DONE]"]
    choices = [choice for frame in frames for choice in frame["choices"]]
    prompts = [each["prompt_token_ids"] for each in [*frames, *choices] if "prompt_token_ids" in each]
    first_choices = [choice for choice in choices if choice["index"] == 0]
    text = "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in first_choices
    )
    return prompts, frames[-1]["usage"], text


def _with_token_ids(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {"return_token_ids": True, "max_tokens": 2, **body, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "kept_range"),
    [
        ({"truncate_prompt_tokens": 20}, slice(-20, None)),
        ({"truncate_prompt_tokens": 1, "truncation_side": "left"}, slice(-1, None)),
        ({"truncate_prompt_tokens": 20, "truncation_side": "right"}, slice(20)),
        ({"truncate_prompt_tokens": -1}, slice(-(CONTEXT - 2), None)),
        ({"truncate_prompt_tokens": -1, "max_tokens": 100}, slice(-28, None)),
        ({"truncate_prompt_tokens": CONTEXT - 2, "n": 3}, slice(-(CONTEXT - 2), None)),
    ],
)
@pytest.mark.parametrize("form", ["text", "ids", "chat"])
async def test_so_many_tokens_are_kept(
    serve: Any, tokenizer: Tokenizer, form: str, fields: dict[str, Any], kept_range: slice, stream: bool
) -> None:
    async with serve("one") as server:
        if form == "chat":
            body_fields: dict[str, Any] = {"messages": MESSAGES}
            whole = (await server.client.post("/tokenize", json=body_fields)).json()["tokens"]
        else:
            whole = tokenizer.encode(LONG)
            body_fields = {"prompt": LONG if form == "text" else whole}
        assert len(whole) > CONTEXT
        body = _with_token_ids(body_fields | fields, stream=stream)
        answer = await server.client.post(CHAT if form == "chat" else TEXT, json=body)
        prompts, usage, text = _read_answer(answer, stream=stream)
        assert [tuple(prompt) for prompt in set(map(tuple, prompts))] == [tuple(whole[kept_range])]
        assert usage["prompt_tokens"] == len(whole[kept_range])
        assert text == "one"


@pytest.mark.parametrize("count", [3, 100])
async def test_each_prompt_of_a_list_is_cut_by_itself(serve: Any, tokenizer: Tokenizer, count: int) -> None:
    texts = ["a b", LONG]
    async with serve("one") as server:
        body = _with_token_ids(
            {"prompt": texts, "truncate_prompt_tokens": count, "echo": True, "logprobs": 0}, stream=False
        )
        answer = await server.client.post(TEXT, json=body)
        prompts, usage, _ = _read_answer(answer, stream=False)
        expected = [tokenizer.encode(text)[-count:] for text in texts]
        assert prompts == expected
        assert usage["prompt_tokens"] == sum(map(len, expected))
        for prompt, choice in zip(expected, answer.json()["choices"], strict=True):
            assert choice["text"] == tokenizer.decode(prompt) + "one", "the prompt that the model read is echoed"


async def test_a_prompt_that_fits_is_not_cut(serve: Any) -> None:
    async with serve("one") as server:
        for body in ({"prompt": "a b c"}, {"prompt": "a b c", "truncate_prompt_tokens": 50}):
            assert (await server.client.post(TEXT, json=body)).json()["usage"]["prompt_tokens"] == 3


async def test_texts_beyond_what_the_context_could_hold_are_cut(serve: Any) -> None:
    text = "many words " * 20_000
    async with serve("one") as server:
        for path, body in ((TEXT, {"prompt": text}), (CHAT, {"messages": [{"role": "user", "content": text}]})):
            refused = await server.client.post(path, json=body)
            assert (refused.status_code, "bytes of text" in refused.text) == (400, True)
            cut = await server.client.post(path, json=body | {"truncate_prompt_tokens": -1, "max_tokens": 5})
            assert cut.json()["usage"]["prompt_tokens"] == CONTEXT - 5


async def test_a_small_pool_is_what_is_left(serve: Any) -> None:
    async with serve("one", num_blocks=8) as server:
        cut = await server.client.post(TEXT, json={"prompt": LONG, "truncate_prompt_tokens": -1, "max_tokens": 5})
        assert cut.json()["usage"]["prompt_tokens"] == 8 * 8 + 1 - 5
        refused = await server.client.post(TEXT, json={"prompt": LONG, "truncate_prompt_tokens": 61, "max_tokens": 5})
        assert refused.json()["error"]["message"] == "truncate_prompt_tokens: must be -1 or 1 to 60 (got 61)"


@pytest.mark.parametrize(("side", "field"), [("left", "reasoning_content"), ("right", "content")])
async def test_whether_thinking_has_begun_is_of_the_kept_end(tokenizer: Tokenizer, side: str, field: str) -> None:
    """A template that begins a thought: where its mark is cut off on the right, the answer is none."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}"
    async with scripted_server(tokenizer.with_template(template))("one") as server:
        body = {"messages": MESSAGES, "truncate_prompt_tokens": 20, "truncation_side": side, "max_tokens": 2}
        message = (await server.client.post(CHAT, json=body)).json()["choices"][0]["message"]
        assert message[field] == "one", message
        assert (message["content"] is None) == (side == "left")


async def test_other_apis_have_their_own_fields(serve: Any) -> None:
    """OpenAI's ``truncation: auto`` would drop whole items, which the engine does not: it stays ignored and named."""
    async with serve("one") as server:
        answer = await server.client.post("/v1/responses", json={"input": "Hi", "truncation": "auto"})
        assert (answer.status_code, answer.headers["x-paternoster-ignored"]) == (200, "truncation=auto")
        answer = await server.client.post("/v1/responses", json={"input": "Hi", "truncate_prompt_tokens": 5})
        assert (answer.status_code, answer.headers["x-paternoster-ignored"]) == (200, "truncate_prompt_tokens")
