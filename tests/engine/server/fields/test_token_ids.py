"""``return_token_ids`` and ``return_tokens_as_token_ids``: prompt and answer as ids."""

import json
from typing import Any

import pytest

from paternoster_engine.model.tokenizer import Tokenizer

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"prompt": ["one", "two three"], "max_tokens": 16}
ANSWER = "a 🙂 stop b"
"""The emoji is of several tokens, whose text comes with the last of them."""


async def _post(server: Any, path: str, **body: Any) -> dict[str, Any]:
    response = await server.client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def _streamed(server: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    response = await server.client.post(f"/v1/{path}", json=body | {"stream": True})
    assert response.status_code == 200, response.text
    return [json.loads(event[6:]) for event in response.text.split("\n\n")[:-2]]


def _answer_ids(tokenizer: Tokenizer) -> list[int]:
    return [*tokenizer.encode(ANSWER), tokenizer.eos_token_ids[0]]


@pytest.mark.parametrize("search", [False, True])
async def test_a_chat_tells_its_prompt_once_and_each_choice_its_tokens(
    serve: Any, tokenizer: Tokenizer, search: bool
) -> None:
    async with serve(ANSWER) as server:
        tokenized = await server.client.post("/tokenize", json=CHAT)
        answer = await _post(
            server, "chat/completions", **CHAT, return_token_ids=True, n=2, use_beam_search=search, max_tokens=12
        )
        assert answer["prompt_token_ids"] == tokenized.json()["tokens"]
        token_ids = [choice["token_ids"] for choice in answer["choices"]]
        assert len(token_ids) == 2
        if search:
            assert [tokenizer.decode(ids) for ids in token_ids] == [c["message"]["content"] for c in answer["choices"]]
        else:
            assert token_ids == [_answer_ids(tokenizer)] * 2


async def test_texts_tell_each_its_own_prompt(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve(ANSWER) as server:
        choices = (await _post(server, "completions", **TEXT, return_token_ids=True, n=2, echo=True))["choices"]
        prompts = [tokenizer.encode(text) for text in ("one", "one", "two three", "two three")]
        assert [choice["prompt_token_ids"] for choice in choices] == prompts
        # An echo is no token of the answer.
        assert [choice["token_ids"] for choice in choices] == [_answer_ids(tokenizer)] * 4
        (only,) = (await _post(server, "completions", prompt=[5, 6], max_tokens=0, echo=True, return_token_ids=True))[
            "choices"
        ]
        assert (only["prompt_token_ids"], only["token_ids"]) == ([5, 6], [])


async def test_a_stop_string_ends_the_tokens_with_the_one_that_completes_it(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve(ANSWER) as server:
        body = CHAT | {"stop": "stop", "return_token_ids": True}
        (choice,) = (await _post(server, "chat/completions", **body))["choices"]
        assert choice["message"]["content"] == "a 🙂 "
        assert tokenizer.decode(choice["token_ids"]) == "a 🙂 stop"
        chunks = await _streamed(server, "chat/completions", **body)
        assert [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])] == choice["token_ids"]


@pytest.mark.parametrize("paced", [False, True])
async def test_a_streams_pieces_join_to_the_whole(serve: Any, tokenizer: Tokenizer, paced: bool) -> None:
    async with serve(ANSWER, paced=paced) as server:
        chunks = await _streamed(server, "chat/completions", **CHAT, return_token_ids=True, n=2)
        assert [index for index, chunk in enumerate(chunks) if "prompt_token_ids" in chunk] == [0]
        tokenized = await server.client.post("/tokenize", json=CHAT)
        assert chunks[0]["prompt_token_ids"] == tokenized.json()["tokens"]
        joined: dict[int, list[int]] = {0: [], 1: []}
        for chunk in chunks:
            joined[chunk["choices"][0]["index"]] += chunk["choices"][0].get("token_ids", [])
        assert joined == {0: _answer_ids(tokenizer), 1: _answer_ids(tokenizer)}

        texts = await _streamed(server, "completions", **TEXT, return_token_ids=True)
        joined = {0: [], 1: []}
        prompts: dict[int, list[list[int]]] = {0: [], 1: []}
        for chunk in texts:
            (choice,) = chunk["choices"]
            joined[choice["index"]] += choice["token_ids"]
            prompts[choice["index"]] += [choice["prompt_token_ids"]] if "prompt_token_ids" in choice else []
        assert joined == {0: _answer_ids(tokenizer), 1: _answer_ids(tokenizer)}
        assert prompts == {0: [tokenizer.encode("one")], 1: [tokenizer.encode("two three")]}


async def test_reasoning_that_is_not_told_has_its_tokens_told(serve: Any) -> None:
    async with serve("<think>why</think>so") as server:
        body = CHAT | {"return_token_ids": True, "include_reasoning": False}
        (choice,) = (await _post(server, "chat/completions", **body))["choices"]
        chunks = await _streamed(server, "chat/completions", **body)
        assert [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])] == choice["token_ids"]


@pytest.mark.parametrize(("path", "body"), [("chat/completions", CHAT), ("completions", TEXT)])
@pytest.mark.parametrize("no_ids", [{}, {"return_token_ids": False}, {"return_token_ids": None}])
async def test_nobody_is_told_who_does_not_ask(
    serve: Any, path: str, body: dict[str, Any], no_ids: dict[str, Any]
) -> None:
    async with serve(ANSWER) as server:
        for answer in (await _post(server, path, **body, **no_ids), *await _streamed(server, path, **body, **no_ids)):
            assert "token_ids" not in json.dumps(answer)


async def test_log_probabilities_name_tokens_by_their_ids(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve(ANSWER) as server:
        names = [f"token_id:{token}" for token in _answer_ids(tokenizer)]
        body = CHAT | {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
        (choice,) = (await _post(server, "chat/completions", **body))["choices"]
        content = choice["logprobs"]["content"]
        assert [entry["token"] for entry in content] == names
        # The scripted model's best token is the one with the next number.
        assert [entry["top_logprobs"][0]["token"] for entry in content] == [
            f"token_id:{token + 1}" for token in _answer_ids(tokenizer)
        ]
        assert bytes(content[0]["bytes"]).decode() == "a"
        (choice,) = (
            await _post(server, "completions", prompt="one", logprobs=2, return_tokens_as_token_ids=True, max_tokens=16)
        )["choices"]
        assert choice["logprobs"]["tokens"] == names
        assert names[0] in choice["logprobs"]["top_logprobs"][0]
        assert all(name.startswith("token_id:") for name in choice["logprobs"]["top_logprobs"][0])


async def test_names_by_id_need_log_probabilities_to_name_something(serve: Any) -> None:
    async with serve(ANSWER) as server:
        plain = await _post(server, "chat/completions", **CHAT, return_tokens_as_token_ids=True)
        assert plain["choices"][0]["logprobs"] is None
