"""Log probabilities, ``echo`` and ``best_of`` of a real engine, read by the real ``openai`` client."""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import openai
import pytest

MODEL = "smollm2"
TEXT = "Once upon a time there was a lift that never stopped, and the people of the town"


@pytest.fixture(scope="module")
def client(run_engine: Any) -> Iterator[openai.OpenAI]:
    # In bfloat16 the two best tokens are often as likely as each other, and a cached prefix decides between them.
    with run_engine("--max-num-seqs", "8", "--served-model-name", MODEL, "--dtype", "float32") as engine:
        yield openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)


def test_chat(client: openai.OpenAI) -> None:
    chat_fields: dict[str, Any] = {
        "model": MODEL, "messages": [{"role": "user", "content": "What is the capital of Japan?"}],
        "temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 5,
    }  # fmt: skip
    (choice,) = client.chat.completions.create(**chat_fields).choices
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content is not None
    assert (
        bytes(byte for entry in content for byte in entry.bytes or ())
        .decode()
        .startswith(choice.message.content or "?")
    )
    for entry in content:
        # Greedy: the token is the best one, and the five best are not more than certain.
        assert (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob) == (entry.token, entry.logprob)
        logprobs = [top.logprob for top in entry.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert len(logprobs) == 5
        assert sum(map(math.exp, logprobs)) <= 1 + 1e-6
    chunks = list(client.chat.completions.create(**chat_fields, stream=True))
    streamed = [
        e
        for chunk in chunks
        if (choice_logprobs := chunk.choices[0].logprobs) is not None
        for e in choice_logprobs.content or ()
    ]
    assert [entry.token for entry in streamed] == [entry.token for entry in content]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in content], abs=1e-3)


def test_an_echo_tells_of_an_output_what_was_told_when_it_was_sampled(client: openai.OpenAI) -> None:
    """Once as sampled tokens, once as a prompt: the same numbers from different passes."""
    (first,) = client.completions.create(
        model=MODEL, prompt=TEXT, max_tokens=8, temperature=1, seed=4, logprobs=3, extra_body={"ignore_eos": True}
    ).choices
    (second,) = client.completions.create(
        model=MODEL, prompt=TEXT + first.text, max_tokens=1, temperature=0, logprobs=3, echo=True
    ).choices
    assert first.logprobs is not None
    assert second.logprobs is not None
    assert second.text.startswith(TEXT + first.text)
    tokens, logprobs = first.logprobs.tokens or [], first.logprobs.token_logprobs or []
    assert (second.logprobs.tokens or [])[-9:-1] == tokens
    assert (second.logprobs.token_logprobs or [])[-9:-1] == pytest.approx(logprobs, abs=1e-3)
    assert second.logprobs.text_offset is not None
    for offset, token in zip(second.logprobs.text_offset, second.logprobs.tokens or [], strict=True):
        assert second.text.startswith(token, offset)


def test_best_of_is_the_likeliest_a_token(client: openai.OpenAI) -> None:
    chat_fields: dict[str, Any] = {
        "model": MODEL, "prompt": TEXT, "max_tokens": 16, "temperature": 1, "seed": 9, "stop": [",", "."],
        "logprobs": 0,
    }  # fmt: skip
    all_four = client.completions.create(**chat_fields, n=4).choices
    best = client.completions.create(**chat_fields, best_of=4, n=2)

    def mean(choice: Any) -> float:
        return fmean(choice.logprobs.token_logprobs)

    assert len({len(choice.logprobs.tokens) for choice in all_four if choice.logprobs and choice.logprobs.tokens}) > 1
    expected = sorted(all_four, key=mean, reverse=True)[:2]
    assert [choice.text for choice in best.choices] == [choice.text for choice in expected]
    assert best.usage is not None
    assert best.usage.completion_tokens == sum(len(c.logprobs.tokens or ()) for c in all_four if c.logprobs)


def test_a_field_out_of_range_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"top_logprobs.*20.*got 21") as raised:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], logprobs=True, top_logprobs=21
        )
    assert raised.value.response.json()["error"]["param"] == "top_logprobs"
