"""Log probabilities on the wire: whole and streamed, of outputs and prompts, and what ``best_of`` makes of them."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.core.request import FinishReason, TokenLogprobs
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.output_text import SequenceDelta, SequenceText, TokenText
from paternoster_engine.server.openai.logprobs import LOWEST, LogprobsWriter

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "seed": 0}
BEST, TOKEN, THIRD = -0.5, -1.5, -2.5
"""What the scripted model says under seed 0 of the likeliest token, the one it samples, and the third."""


async def _post(server: Any, path: str, **body: Any) -> dict[str, Any]:
    response = await server.client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def _streamed(server: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    """The choices of all frames."""
    response = await server.client.post(f"/v1/{path}", json=body | {"stream": True})
    assert response.status_code == 200, response.text
    return [json.loads(event[6:])["choices"][0] for event in response.text.split("\n\n")[:-2]]


async def test_chat(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve("one two") as server:
        (choice,) = (await _post(server, "chat/completions", **CHAT, logprobs=True, top_logprobs=2))["choices"]
        one, two = tokenizer.encode("one two")
        other = {token: list(tokenizer.token_bytes(token + 1)) for token in (one, two)}
        assert choice["logprobs"]["refusal"] is None
        assert choice["logprobs"]["content"][:2] == [
            {
                "token": text,
                "logprob": TOKEN,
                "bytes": list(text.encode()),
                "top_logprobs": [
                    {"token": tokenizer.decode([token + 1]), "logprob": BEST, "bytes": other[token]},
                    {"token": text, "logprob": TOKEN, "bytes": list(text.encode())},
                ],
            }
            for token, text in ((one, "one"), (two, " two"))
        ]  # fmt: skip
        # The token that ended it was sampled as well, and is counted.
        assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["one", " two", "<|im_end|>"]


async def test_chat_without_others(serve: Any) -> None:
    async with serve("one two") as server:
        (choice,) = (await _post(server, "chat/completions", **CHAT, logprobs=True))["choices"]
        assert [entry["top_logprobs"] for entry in choice["logprobs"]["content"]] == [[], [], []]
        (choice,) = (await _post(server, "chat/completions", **CHAT))["choices"]
        assert choice["logprobs"] is None


async def test_completion(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve("one two") as server:
        one, two = tokenizer.encode("one two")
        for num_top in (0, 1, 2):
            body = {"prompt": "Hi", "seed": 0, "max_tokens": 2, "logprobs": num_top}
            (choice,) = (await _post(server, "completions", **body))["choices"]
            assert choice["logprobs"] == {
                "text_offset": [0, 3],
                "token_logprobs": [TOKEN, TOKEN],
                "tokens": ["one", " two"],
                "top_logprobs": [
                    ({tokenizer.decode([token + 1]): BEST} if num_top else {}) | {text: TOKEN}
                    for token, text in ((one, "one"), (two, " two"))
                ],
            }


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize("text", ["one two three", "a 🪁 b", "one STOP"])
async def test_a_stream_tells_the_same_as_the_whole(serve: Any, text: str, paced: bool) -> None:
    async with serve(text, paced=paced) as server:
        fields = CHAT | {"logprobs": True, "top_logprobs": 3, "stop": "STOP"}
        whole = await _post(server, "chat/completions", **fields)
        opening, *chunks = await _streamed(server, "chat/completions", **fields)
        assert opening["logprobs"] is None
        content = [entry for chunk in chunks for entry in chunk["logprobs"]["content"]]
        assert content == whole["choices"][0]["logprobs"]["content"]
        assert len(content) == whole["usage"]["completion_tokens"]

        fields = {"prompt": "Hi", "seed": 3, "logprobs": 2, "stop": "STOP", "echo": True, "max_tokens": 20}
        whole = await _post(server, "completions", **fields)
        chunks = await _streamed(server, "completions", **fields)
        assert "".join(chunk["text"] for chunk in chunks) == whole["choices"][0]["text"]
        for name, values in whole["choices"][0]["logprobs"].items():
            assert [value for chunk in chunks for value in chunk["logprobs"][name]] == values


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize(
    ("text", "stop", "seen", "unseen"),
    [
        ("one two", [], "one two", ["<|im_end|>"]),
        ("a 🪁", [], "a 🪁", ["<|im_end|>"]),
        ("one two three", [" two"], "one", [" two"]),
    ],
)
async def test_tokens_that_are_not_seen_come_with_the_end(
    serve: Any, text: str, stop: list[str], seen: str, unseen: list[str], paced: bool
) -> None:
    """However many tokens a chunk has: a client that takes its text from them must not find the token of the end."""
    async with serve(text, paced=paced) as server:
        _, *chunks, last = await _streamed(server, "chat/completions", **CHAT, logprobs=True, stop=stop)
        spelled = [entry for chunk in chunks for entry in chunk["logprobs"]["content"]]
        assert "".join(chunk["delta"]["content"] for chunk in chunks) == seen
        assert bytes(byte for entry in spelled for byte in entry["bytes"]).decode() == seen
        assert last["delta"] == {"content": ""}
        assert last["finish_reason"] == "stop"
        assert [entry["token"] for entry in last["logprobs"]["content"]] == unseen
        fields = {"prompt": "Hi", "seed": 0, "logprobs": 0, "max_tokens": 20}
        *texts, last = await _streamed(server, "completions", **fields, stop=stop)
        assert "".join(chunk["text"] for chunk in texts) == seen
        assert (last["text"], last["logprobs"]["tokens"]) == ("", unseen)


async def test_characters_of_several_tokens(serve: Any) -> None:
    """Each token has its own bytes, and the place where its character begins."""
    async with serve("a 🪁 b") as server:
        (choice,) = (await _post(server, "chat/completions", **CHAT, logprobs=True))["choices"]
        *content, _ = choice["logprobs"]["content"]
        assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == "a 🪁 b"
        assert any("\\x" in entry["token"] for entry in content)
        body = {"prompt": "Hi", "logprobs": 0, "max_tokens": len(content)}
        (choice,) = (await _post(server, "completions", **body))["choices"]
        offsets = choice["logprobs"]["text_offset"]
        assert offsets == sorted(offsets)
        assert choice["text"][offsets[-1] :] == " b"


async def test_echo(serve: Any) -> None:
    async with serve("one two") as server:
        body = {"prompt": ["Hi there you", "a"], "seed": 0, "max_tokens": 1, "echo": True}
        quiet = await _post(server, "completions", **body)
        assert [(choice["text"], choice["logprobs"]) for choice in quiet["choices"]] == [
            ("Hi there youone", None), ("aone", None),
        ]  # fmt: skip
        body_of_answer = await _post(server, "completions", **body, logprobs=1, n=2)
        assert [choice["text"] for choice in body_of_answer["choices"]] == ["Hi there youone"] * 2 + ["aone"] * 2
        first = body_of_answer["choices"][0]["logprobs"]
        assert first["tokens"] == ["Hi", " there", " you", "one"]
        assert first["text_offset"] == [0, 2, 8, 12]
        assert first["token_logprobs"] == [None, TOKEN, TOKEN, TOKEN]
        assert first["top_logprobs"][0] is None
        assert [len(top) for top in first["top_logprobs"][1:]] == [2, 2, 2]
        assert body_of_answer["choices"][3]["logprobs"]["token_logprobs"][0] is None
        assert body_of_answer["usage"]["completion_tokens"] == 4


async def test_prompt_logprobs(serve: Any, tokenizer: Tokenizer) -> None:
    async with serve("one two", max_batched_tokens=8) as server:
        prompt = tokenizer.encode("a b c d e f g h i j k l m n")
        body = {"prompt": [prompt, prompt[:1]], "seed": 0, "max_tokens": 1, "prompt_logprobs": 2, "n": 2}
        choices = (await _post(server, "completions", **body))["choices"]
        first, *entries = choices[0]["prompt_logprobs"]
        assert first is None
        assert entries == [
            {
                str(token): {"logprob": TOKEN, "rank": 2, "decoded_token": tokenizer.decode([token])},
                str(token + 1): {"logprob": BEST, "rank": 1, "decoded_token": tokenizer.decode([token + 1])},
            }
            for token in prompt[1:]
        ]
        assert choices[1]["prompt_logprobs"] == choices[0]["prompt_logprobs"]
        assert choices[2]["prompt_logprobs"] == choices[3]["prompt_logprobs"] == [None]
        assert all(choice["logprobs"] is None for choice in choices)
        chat = await _post(server, "chat/completions", **CHAT, prompt_logprobs=0)
        assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
        assert [len(entry) for entry in chat["prompt_logprobs"][1:]] == [1] * (len(chat["prompt_logprobs"]) - 1)


async def test_choices_share_a_prompt_that_is_told(serve: Any) -> None:
    async with serve("one") as server:
        counters = server.loop.engine.scheduler.counters
        body = {"prompt": [5] * 40, "n": 4, "max_tokens": 1, "prompt_logprobs": 0}
        await _post(server, "completions", **body)
        assert counters.computed_tokens == 40 + 3 * 8
        await _post(server, "completions", **body)
        assert counters.computed_tokens == 2 * (40 + 3 * 8), "what is cached is computed again for its logits, once"


async def test_best_of_gives_the_likeliest_first(serve: Any) -> None:
    async with serve("one two") as server:
        # Seeds 5, 6, 7 and 8, of which 8 is as likely as 0.
        body = {"prompt": ["a", "b b"], "seed": 5, "best_of": 4, "n": 2, "max_tokens": 3}
        body_of_answer = await _post(server, "completions", **body, logprobs=0)
        means = [sum(c["logprobs"]["token_logprobs"]) / 3 for c in body_of_answer["choices"]]
        assert means == [TOKEN, TOKEN - 2.5] * 2
        assert [choice["index"] for choice in body_of_answer["choices"]] == [0, 1, 2, 3]
        counts = {"prompt_tokens": 3, "completion_tokens": 24, "total_tokens": 27}
        assert body_of_answer["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": 0}}
        quiet = await _post(server, "completions", **body)
        assert [choice["logprobs"] for choice in quiet["choices"]] == [None] * 4
        same = await _post(server, "completions", **body | {"best_of": 2}, stream=False)
        assert len(same["choices"]) == 4


async def test_best_of_an_echo_alone_has_nothing_to_rank(serve: Any) -> None:
    """And nothing is computed for choices that no client gets."""
    async with serve("one two") as server:
        body = {"prompt": ["a", "b b"], "echo": True, "max_tokens": 0, "best_of": 4, "n": 2}
        body_of_answer = await _post(server, "completions", **body)
        assert [(choice["text"], choice["finish_reason"]) for choice in body_of_answer["choices"]] == [
            ("a", "length"), ("a", "length"), ("b b", "length"), ("b b", "length"),
        ]  # fmt: skip
        assert body_of_answer["usage"]["completion_tokens"] == 0
        counters = server.loop.engine.scheduler.counters
        assert await server.loop.call_in_loop(lambda: sum(counters.finished.values())) == 4
        (choice,) = (await _post(server, "completions", **body | {"prompt": "a b", "n": 1}, logprobs=1))["choices"]
        assert choice["logprobs"]["tokens"] == ["a", " b"]


async def test_what_json_cannot_say_and_tokens_that_are_spelled_alike(tokenizer: Tokenizer) -> None:
    entry = TokenLogprobs(5, float("-inf"), 49152, ((7, -0.1), (8, -0.2)))
    alike = tokenizer.id_to_token(7)
    writer = LogprobsWriter(tokenizer)
    text = await writer.write_text([TokenText(5, 0, entry)], 2)
    assert text.token_logprobs == [LOWEST]
    assert text.top_logprobs == [
        {tokenizer.decode([7], False): -0.1, tokenizer.decode([8], False): -0.2, text.tokens[0]: LOWEST}
    ]
    assert alike is not None
    assert json.loads(text.model_dump_json())["token_logprobs"] == [LOWEST]


@given(
    st.lists(st.floats(-50, 0), min_size=1, max_size=8, unique=True).map(lambda found: sorted(found, reverse=True)),
    st.integers(0, 8), st.integers(0, 8), st.integers(1, 8),
)  # fmt: skip
def test_the_best_come_in_order_also_where_tokens_are_spelled_alike(
    logprobs: list[float], num_top: int, sampled: int, spellings: int
) -> None:
    class Alike:
        def token_bytes(self, token: int) -> bytes:
            return b"abcdefgh"[token % spellings :][:1]

    place = sampled % len(logprobs)
    top = tuple(enumerate(logprobs))[:num_top]
    entry = TokenLogprobs(place, logprobs[place], place + 1, top)
    (best,) = asyncio.run(LogprobsWriter(Alike()).write_text([TokenText(place, 0, entry)], num_top)).top_logprobs  # type: ignore[arg-type]
    assert best is not None
    assert list(best.values()) == sorted(best.values(), reverse=True)
    likeliest = {
        "abcdefgh"[token % spellings]: logprob for token, logprob in reversed([*top, (place, logprobs[place])])
    }
    assert best == likeliest


def test_tokens_wait_for_their_text(tokenizer: Tokenizer) -> None:
    """A delta without text would be no chunk: its tokens' log probabilities come with the next."""
    text = SequenceText(tokenizer, SamplingParams(max_tokens=99))
    tokens = tokenizer.encode("🙂")
    assert len(tokens) > 1
    entries = [TokenLogprobs(token, -1.0, 1, ()) for token in tokens]
    deltas = [text.add_token(token, None, logprobs) for token, logprobs in zip(tokens, entries, strict=True)]
    assert deltas[:-1] == [SequenceDelta("")] * (len(tokens) - 1)
    assert deltas[-1] == SequenceDelta("🙂", None, tuple(TokenText(t.token, 0, t) for t in entries))
    end = TokenLogprobs(2, -1.0, 1, ())
    assert text.add_token(2, FinishReason.STOP, end) == SequenceDelta("", FinishReason.STOP, (TokenText(2, 1, end),))
