"""Fields of OpenAI's and vLLM's that clients and load generators send, and what the answers to them have."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from paternoster_engine.server.openai.fields.body import MAX_IGNORED, MAX_NAME, collect_ignored
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
CHAT_FIELDS = ChatCompletionRequest.model_fields
HINTS = {"verbosity", "prompt_cache_options", "prompt_cache_retention"}
"""OpenAI's fields that the engine ignores and reports: an answer without them is no other one."""
IGNORED = "x-paternoster-ignored"


def _frames(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(event[6:]) for event in response.text.split("\n\n") if event and event != "data: [DONE]"]


@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_fields_are_left_out_and_told(serve: Any, stream: bool) -> None:
    """Frameworks send some of their own: LangChain and LiteLLM pass ``cache_control`` on, others a message's id."""
    cached = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    body = {
        "messages": [{"role": "user", "content": [cached, cached], "id": "m1"}],
        "custom": {"a": 1},
        "stream": stream,
    }
    async with serve() as server:
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        assert response.headers[IGNORED] == "custom, messages[].content[].cache_control, messages[].id"
        later = await server.client.post("/v1/chat/completions", json=CHAT)
        assert IGNORED not in later.headers


async def test_unknown_fields_are_told_with_a_refusal_and_by_other_routes(serve: Any) -> None:
    async with serve() as server:
        response = await server.client.post("/tokenize", json={"prompt": "Hi", "foo": 1})
        assert (response.status_code, response.headers[IGNORED]) == (200, "foo")
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "model": "other", "foo": 1})
        assert (response.status_code, response.headers[IGNORED]) == (404, "foo")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_refused_body_tells_no_names_of_what_is_within(serve: Any, path: str) -> None:
    """Its own are not known then, and of an inner object they would stand there without their path."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi", "mood": "good"}]}]
    async with serve() as server:
        response = await server.client.post(path, json={"messages": messages, "max_tokens": 5, "temperature": 9})
        assert response.status_code == 400
        assert IGNORED not in response.headers


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        (chat_params.CompletionCreateParamsBase, ChatCompletionRequest.model_fields),
        (text_params.CompletionCreateParamsBase, CompletionRequest.model_fields),
    ],
)
def test_of_every_field_of_openais_client_it_is_decided_what_becomes_of_it(own: Any, fields: dict[str, Any]) -> None:
    """The client's next version may have more: serve them, refuse them, or say here that they are hints."""
    assert own.__annotations__.keys() - fields.keys() <= HINTS


@given(st.dictionaries(st.text().filter(lambda name: name not in CHAT_FIELDS), st.integers(), max_size=100))
def test_what_is_told_of_unknown_fields_fits_into_a_header(extra: dict[str, int]) -> None:
    with collect_ignored() as ignored_fields:
        ChatCompletionRequest.model_validate({**extra, **CHAT})
    assert bool(ignored_fields) == bool(extra)
    assert len(ignored_fields) <= MAX_IGNORED
    assert all(
        len(name) <= MAX_NAME and all(letter.isalnum() or letter in "_-" for letter in name) for name in ignored_fields
    )
    assert all(name.isascii() for name in ignored_fields)


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_tells_what_the_prefix_cache_had(serve: Any, stream: bool) -> None:
    body = {"prompt": [1] * 40, "max_tokens": 2, "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    async with serve() as server:
        cached = []
        for _ in range(2):
            response = await server.client.post("/v1/completions", json=body)
            usage = (_frames(response)[-1] if stream else response.json())["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] == 0
        assert 8 <= cached[1] < 40
        counted = await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.counters.cached_prompt_tokens)
        assert counted == cached[1]


async def test_choices_of_one_prompt_count_its_cached_tokens_once(serve: Any) -> None:
    async with serve() as server:
        response = await server.client.post("/v1/completions", json={"prompt": [1] * 40, "max_tokens": 2, "n": 4})
        assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_preempted_request_does_not_count_its_own_blocks_as_cached(serve: Any) -> None:
    async with serve("a " * 60, num_blocks=12, watermark_blocks=0) as server:
        body = {"prompt": [[1] * 20, [2] * 20], "max_tokens": 40, "ignore_eos": True}
        usage = (await server.client.post("/v1/completions", json=body)).json()["usage"]
        assert await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.counters.preemptions) > 0
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("include", [False, True])
async def test_usage_in_every_chunk(serve: Any, path: str, include: bool) -> None:
    body = {"stream": True, "stream_options": {"continuous_usage_stats": True, "include_usage": include}}
    body |= CHAT if path.startswith("chat") else {"prompt": "Hi"}
    async with serve("one two three", paced=True) as server:
        frames = _frames(await server.client.post(f"/v1/{path}", json=body))
        usages = [frame["usage"] for frame in frames if "usage" in frame]
        assert (frames[-1]["choices"] == []) is include
        if not include:
            assert usages == []
            return
        assert len(usages) == len(frames)
        counts = [usage["completion_tokens"] for usage in usages]
        assert counts == sorted(counts)
        assert (counts[0] == 0) is path.startswith("chat")
        assert counts[-1] == 4


async def test_the_fingerprint_is_told(serve: Any) -> None:
    async with serve() as server:
        whole = (await server.client.post("/v1/chat/completions", json=CHAT)).json()
        frames = _frames(await server.client.post("/v1/completions", json={"prompt": "Hi", "stream": True}))
        assert {whole["system_fingerprint"], *(frame["system_fingerprint"] for frame in frames)} == {"fp_scripted"}


async def test_one_model_by_its_name(serve: Any) -> None:
    async with serve(name="org/some model") as server:
        listed = (await server.client.get("/v1/models")).json()["data"][0]
        assert (await server.client.get("/v1/models/org/some%20model")).json() == listed
        assert listed["max_model_len"] == 128
        unnamed = await server.client.post("/v1/chat/completions", json=CHAT | {"model": ""})
        assert unnamed.json()["model"] == "org/some model"
        missing = await server.client.get("/v1/models/org/other")
        assert (missing.status_code, missing.json()["error"]["param"]) == (404, "model")


@given(st.floats(0, 2))
def test_a_temperature_is_greedy_or_one_that_logits_can_be_divided_by(temperature: float) -> None:
    """A logit of 100 is a number of float32 then; divided by 1e-38 it, and many beside it, would be infinite."""
    params = CompletionRequest(prompt="x", temperature=temperature).sampling_params(1)
    assert params.temperature == temperature if temperature >= 1e-5 else params.greedy


async def test_of_two_limits_the_newer_name_wins(serve: Any) -> None:
    """vLLM does so, too; GuideLLM and others send both."""
    async with serve("one two three four") as server:
        body = CHAT | {"max_tokens": 1, "max_completion_tokens": 2}
        assert (await server.client.post("/v1/chat/completions", json=body)).json()["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_but_the_prompt(serve: Any, stream: bool) -> None:
    """How lm-evaluation-harness asks for the likelihood of a text."""
    body = {"prompt": [[1, 2, 3], [4, 5]], "echo": True, "max_tokens": 0, "logprobs": 1, "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    async with serve() as server:
        response = await server.client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        frames = _frames(response) if stream else [response.json()]
        choices = {choice["index"]: choice for frame in frames for choice in frame["choices"]}
        assert [len(choices[index]["logprobs"]["tokens"]) for index in (0, 1)] == [3, 2]
        assert choices[0]["logprobs"]["token_logprobs"][0] is None
        assert all(choices[0]["logprobs"]["token_logprobs"][1:])
        assert "".join(choices[0]["logprobs"]["tokens"]) == choices[0]["text"]
        assert {choice["finish_reason"] for choice in choices.values()} == {"length"}
        assert (frames[-1]["usage"]["prompt_tokens"], frames[-1]["usage"]["completion_tokens"]) == (5, 0)


async def test_echo_keeps_the_marks_of_a_prompt(serve: Any, tokenizer: Any) -> None:
    text = "<|im_start|>user\nHi<|im_end|>\n"
    ids = tokenizer.encode(text)
    async with serve("one") as server:
        for prompt in (text, ids):
            body = {"prompt": prompt, "echo": True, "max_tokens": 1, "logprobs": 0}
            (choice,) = (await server.client.post("/v1/completions", json=body)).json()["choices"]
            assert choice["text"] == text + "one"
            spelled = zip(choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], strict=True)
            assert all(choice["text"].startswith(token, offset) for offset, token in spelled)


async def test_no_message_repeats_a_body(serve: Any) -> None:
    long = "x" * 100_000
    bodies: list[dict[str, Any]] = [
        CHAT | {"logit_bias": {long: 1}},
        CHAT | {"n": 2, "use_beam_search": True, "stop": [long] * 16},
        CHAT | {"model": long},
        CHAT | {"chat_template": long},
        CHAT | {"service_tier": {long: [long]}},
        CHAT | {"tools": [{"type": "function", "function": {"name": long}}]},
        {"messages": [{"role": long, "content": long}] * 50},
    ]
    async with serve() as server:
        for body in bodies:
            response = await server.client.post("/v1/chat/completions", json=body)
            assert 400 <= response.status_code < 500
            assert len(response.content) < 5000, response.text[:300]
