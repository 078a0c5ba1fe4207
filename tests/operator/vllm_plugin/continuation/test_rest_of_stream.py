"""A stream that is cut anywhere and goes on at another vLLM is the stream that nothing cut."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.vllm_plugin.continuation.server import CALL, Server, cut_stream, resume_stream, whole
from tests.operator.vllm_plugin.continuation.stub_vllm import (
    CHAT,
    COMPLETIONS,
    NUMERICS,
    PROMPT,
    RESPONSES,
    StubVllm,
)

from paternoster_gateway.call.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_vllm.stream_journal import END

MESSAGES = [{"role": "user", "content": "hello"}]
TEXT = st.text(alphabet="ab.é漢🙂", min_size=1, max_size=12)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    path = draw(st.sampled_from([CHAT, COMPLETIONS, RESPONSES]))
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": draw(st.integers(1, 40))}
    body |= {"messages": MESSAGES} if path == CHAT else {"prompt": PROMPT.decode()}
    if stop := draw(st.lists(st.text(alphabet="ab.é", min_size=1, max_size=3), max_size=2)):
        body |= {"stop": stop, "include_stop_str_in_output": draw(st.booleans())}
    if draw(st.booleans()):
        body["min_tokens"] = draw(st.integers(0, body["max_tokens"]))
    if draw(st.booleans()):
        body["stream_options"] = {"include_usage": True}
    if path != RESPONSES:
        body["n"] = draw(st.integers(1, 2))
        if draw(st.booleans()):
            body["logprobs"] = draw(st.integers(0, 3))
    return path, body


@settings(max_examples=100, deadline=None)
@given(calls(), TEXT, st.integers(1, 3), st.data())
def test_a_stream_that_is_cut_is_the_stream_that_nothing_cut(
    call: tuple[str, dict[str, Any]], text: str, tokens_a_step: int, data: st.DataObject
) -> None:
    """Characters of several tokens, stop strings, limits, usage, choices, log probabilities, over two breaks."""

    async def run() -> None:
        path, body = call
        servers = [Server(StubVllm(text.encode(), tokens_a_step)) for _ in range(3)]
        expected = await whole(servers[0], body, path)
        stream = JournaledStream(NUMERICS, open_request_alone())
        answer = await servers[0].call(body, CALL, path)
        got = b""
        for server in servers[1:]:
            frames = [frame + END for frame in answer.content.split(END) if frame]
            if not frames:
                break
            cut = data.draw(st.integers(1, len(frames)))
            got += b"".join(map(stream.feed, frames[:cut]))
            stream.switch_replica()
            answer = await resume_stream(server, stream, body, path)
            assert answer.status_code == 200
        got += stream.feed(answer.content)
        assert got == expected
        assert not stream.handed_over

    asyncio.run(run())


async def test_a_stop_string_that_begins_before_the_break_ends_the_stream() -> None:
    server = Server(StubVllm(b"abcdefgh"))
    body = {"model": "m", "messages": MESSAGES, "stream": True, "stop": ["cde"]}
    stream, got = await cut_stream(server, body, CHAT, 3)  # the role, a, b
    got += stream.feed((await resume_stream(server, stream, body, CHAT)).content)
    choices = [json.loads(frame[len(b"data: ") :])["choices"][0] for frame in got.split(END)[:-2]]
    assert "".join(choice["delta"]["content"] for choice in choices) == "ab"
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", "cde")


async def test_the_engine_gets_what_is_left_and_no_choice_that_has_ended() -> None:
    server = Server(StubVllm(b"abcdef"))
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True, "max_tokens": 5, "min_tokens": 4, "n": 2}
    stream, _ = await cut_stream(server, body, COMPLETIONS, 3)
    server.vllm.client.engine_core.requests.clear()
    await resume_stream(server, stream, body, COMPLETIONS)
    requests = server.vllm.client.engine_core.requests
    so_far = [bytes(request.prompt_token_ids[len(PROMPT) :]) for request in requests]
    assert sorted(map(len, so_far)) == [2, 2]
    assert [each.sampling_params.max_tokens for each in requests] == [5 - len(tokens) for tokens in so_far]
    assert [each.sampling_params.min_tokens for each in requests] == [4 - len(tokens) for tokens in so_far]
    assert all(each.sampling_params.extra_args is None for each in requests), "no grammar"
    stream, _ = await cut_stream(server, body, COMPLETIONS, 10)
    requests.clear()
    await resume_stream(server, stream, body, COMPLETIONS)
    assert requests == [], "both have their end"


async def test_a_grammar_gets_the_number_of_tokens_that_the_answer_has() -> None:
    server = Server(StubVllm(b"abcdef"))
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True, "response_format": {"type": "json_object"}}
    stream, _ = await cut_stream(server, body, COMPLETIONS, 2)
    await resume_stream(server, stream, body, COMPLETIONS)
    first, rest = server.vllm.client.engine_core.requests
    assert (first.sampling_params.extra_args, rest.sampling_params.extra_args) == (
        None,
        {"paternoster_answer_tokens": 2},
    )


async def test_the_first_token_to_come_is_no_gap_between_two() -> None:
    """vLLM's histogram of times between tokens would have one since the start of its clock."""
    server = Server(StubVllm(b"abcdef"))
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True}
    stream, _ = await cut_stream(server, body, COMPLETIONS, 2)
    seen: list[bool] = []
    core = server.vllm.client.engine_core
    send = core.add_request_async

    async def add_request_async(request: Any) -> None:
        seen.append(server.vllm.client.output_processor.request_states[request.request_id].is_prefilling)
        await send(request)

    core.add_request_async = add_request_async  # type: ignore[method-assign]
    await resume_stream(server, stream, body, COMPLETIONS)
    assert seen == [True]


async def test_the_rest_of_a_stream_has_a_place_in_a_full_queue() -> None:
    server = Server(StubVllm(b"abcdef"))
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True}
    expected = await whole(server, body, COMPLETIONS)
    stream, got = await cut_stream(server, body, COMPLETIONS, 2)
    server.vllm.client.is_full = True
    assert got + stream.feed((await resume_stream(server, stream, body, COMPLETIONS)).content) == expected
    assert (await server.call(body, CALL, COMPLETIONS)).content == b": continue\n\n", "a new one goes elsewhere"


@pytest.mark.parametrize(
    ("reason", "written"), [("abort", b": continue\n\n"), ("error", b": continue\n\n"), (None, b": failed\n\n: con")]
)
async def test_what_breaks_a_stream_off_asks_for_another_engine(reason: str | None, written: bytes) -> None:
    vllm = StubVllm(b"abcdef")
    server = Server(vllm)
    processor = vllm.client.output_processor
    process = processor.process_outputs

    def break_off(outputs: list[Any]) -> None:
        if vllm.made == 2 and reason is None:
            next(iter(processor.request_states.values())).queue.put(RuntimeError("EngineCore encountered an issue"))
            processor.request_states.clear()
        elif vllm.made == 2:
            outputs[0].finish_reason, outputs[0].new_token_ids = reason, []
        process(outputs)

    processor.process_outputs = break_off  # type: ignore[method-assign]
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True}
    frames = (await server.call(body, CALL, COMPLETIONS)).content
    assert frames.count(b": journal") == 2
    assert written in frames.split(b"\n\n", 2)[2]
    assert b"error" not in frames
