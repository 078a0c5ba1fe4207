"""A stream that is cut anywhere and goes on at another vLLM is the stream that nothing cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.vllm_plugin.continuation.stub_vllm import (
    MAX_MODEL_LEN,
    PROMPT,
    VOCAB_SIZE,
    StubVllm,
    facts,
)

from paternoster_gateway.proxy.call import Call
from paternoster_gateway.proxy.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_vllm.frames import JournalWriter, decode_frame
from paternoster_vllm.rest_of_stream import RestOfStream
from paternoster_vllm.stream_journal import END, decode_journal
from paternoster_vllm.streamed_call import CHAT, COMPLETIONS, StreamedCall, read_call

ANY_CALL = Call("/v1/chat/completions", "m", b"", {})

MESSAGES = [{"role": "user", "content": "hello"}]
TEXT = st.text(alphabet="ab.é漢🙂", min_size=1, max_size=12)


def chat(**fields: Any) -> StreamedCall:
    call = read_call(CHAT, json.dumps({"model": "m", "messages": MESSAGES, "stream": True, **fields}).encode())
    assert call is not None
    return call


def completion(**fields: Any) -> StreamedCall:
    document = {"model": "m", "prompt": PROMPT.decode(), "stream": True, **fields}
    call = read_call(COMPLETIONS, json.dumps(document).encode())
    assert call is not None
    return call


def undisturbed(call: StreamedCall, vllm: StubVllm) -> list[bytes]:
    """The frames of vLLM without the plugin."""
    return [b"data: " + data + END for data in vllm.write_frames(dict(call.document), call.is_chat)]


def journaled(call: StreamedCall, vllm: StubVllm) -> list[bytes]:
    """The frames of vLLM with the plugin, each behind its line."""
    writer = JournalWriter(call)
    frames = vllm.write_frames(json.loads(call.build_first_body()), call.is_chat)
    return [writer.write_frame(b"data: " + data) for data in frames]


def continued(call: StreamedCall, vllm: StubVllm, journal: bytes, num_frames: int) -> list[bytes]:
    """The frames of the vLLM that goes on."""
    progress = decode_journal(journal, num_frames, VOCAB_SIZE, MAX_MODEL_LEN)
    server = facts()
    limit = server.limit_tokens(call, len(progress.head.prompt))
    rest = RestOfStream(call, progress, limit, server.make_detokenizer, server.fingerprint)
    at_once = rest.finish_at_once()
    if at_once is not None:
        assert rest.ended
        return [at_once]
    written = []
    for data in vllm.write_frames(json.loads(rest.build_request()), False):
        if not rest.ended:
            written.append(rest.write_frame(b"data: " + data))
    assert rest.ended
    return written


@st.composite
def calls(draw: st.DrawFn) -> StreamedCall:
    fields: dict[str, Any] = {"max_tokens": draw(st.integers(1, 40))}
    if stop := draw(st.lists(st.text(alphabet="ab.é", min_size=1, max_size=3), max_size=2)):
        fields |= {"stop": stop, "include_stop_str_in_output": draw(st.booleans())}
    if draw(st.booleans()):
        fields["min_tokens"] = draw(st.integers(0, fields["max_tokens"]))
    if draw(st.booleans()):
        fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": draw(st.booleans())}
    if draw(st.booleans()):
        fields["return_token_ids"] = True
    return chat(**fields) if draw(st.booleans()) else completion(**fields)


@settings(max_examples=400, deadline=None)
@given(calls(), TEXT, st.integers(1, 3), st.data())
def test_a_stream_that_is_cut_is_the_stream_that_nothing_cut(
    call: StreamedCall, text: str, tokens_a_frame: int, data: st.DataObject
) -> None:
    """Characters of several tokens, stop strings, limits, usage: frame by frame, over two breaks."""
    vllm = StubVllm(text.encode(), tokens_a_frame)
    expected, first = undisturbed(call, vllm), journaled(call, vllm)
    stream = JournaledStream("vllm-a", open_request_alone())
    assert b"".join(map(stream.feed, first)) == b"".join(expected)
    assert stream.num_frames == len(expected)
    stream = JournaledStream("vllm-a", open_request_alone())
    got = b""
    frames, cuts = first, data.draw(st.lists(st.integers(1, len(first)), min_size=1, max_size=2))
    for cut in cuts:
        got += b"".join(map(stream.feed, frames[:cut]))
        stream.switch_replica()
        frames = continued(call, vllm, stream.build_resumption(ANY_CALL).journal, stream.num_frames)
        frames = [frame + END for frame in b"".join(frames).removesuffix(END).split(END) if frame]
    got += b"".join(map(stream.feed, frames))
    assert got == b"".join(expected)


def test_a_stop_string_that_begins_before_the_break_ends_the_stream() -> None:
    call, vllm = chat(stop=["cde"], stream_options={"include_usage": True}), StubVllm(b"abcdefgh")
    first = journaled(call, vllm)
    stream = JournaledStream("vllm-a", open_request_alone())
    client = b"".join(map(stream.feed, first[:5]))  # the role, then a, b, c, d, of which two are held back
    client += stream.feed(b"".join(continued(call, vllm, stream.build_resumption(ANY_CALL).journal, 5)))
    documents = [decode_frame(frame) for frame in client.split(END)]
    choices = [choice for document in documents if document is not None for choice in document["choices"]]
    assert "".join(choice["delta"]["content"] for choice in choices) == "ab"
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", "cde")
    assert documents[-3] is not None
    assert documents[-3]["usage"]["completion_tokens"] == 5


def test_vllm_is_to_make_no_more_tokens_once_it_does_not_know_the_end() -> None:
    call, vllm = chat(stop=["c"]), StubVllm(b"abcd")
    journal = b"\n".join(frame.partition(b"\n")[0].removeprefix(b": journal ") for frame in journaled(call, vllm)[:2])
    progress = decode_journal(journal, 2, VOCAB_SIZE, MAX_MODEL_LEN)
    rest = RestOfStream(call, progress, 100, facts().make_detokenizer)
    cut = []
    for data in vllm.write_frames(json.loads(rest.build_request()), False):
        rest.write_frame(b"data: " + data)
        cut.append((rest.ended, rest.cuts))
        if rest.ended:
            break
    assert cut == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("frame", "written"),
    [
        ({"error": {"message": "EngineCore encountered an issue", "code": 500}}, b": failed\n\n: continue\n\n"),
        ({"choices": [{"index": 0, "text": "", "token_ids": [], "finish_reason": "abort"}]}, b": continue\n\n"),
    ],
)
def test_what_breaks_a_stream_off_asks_for_another_engine(frame: dict[str, Any], written: bytes) -> None:
    writer = JournalWriter(chat())
    assert writer.write_frame(b"data: " + json.dumps(frame).encode()) == written
    assert writer.ended
    call, vllm = chat(), StubVllm(b"ab")
    journal = b"\n".join(line.partition(b"\n")[0].removeprefix(b": journal ") for line in journaled(call, vllm)[:2])
    progress = decode_journal(journal, 2, VOCAB_SIZE, MAX_MODEL_LEN)
    rest = RestOfStream(call, progress, 100, facts().make_detokenizer)
    assert rest.write_frame(b"data: " + json.dumps(frame).encode()) == written
    assert rest.ended


def test_an_error_that_is_the_clients_passes() -> None:
    writer = JournalWriter(chat())
    frame = b'data: {"error": {"message": "too long", "code": 400}}'
    assert writer.write_frame(frame) == b": journal []\n" + frame + END
    assert not writer.ended
