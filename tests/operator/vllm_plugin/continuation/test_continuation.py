"""The layer that writes journals and continues streams, before an application that answers as vLLM does."""

import asyncio
import json
from typing import Any

import pytest
from tests.operator.vllm_plugin.continuation.server import ANY_CALL, CALL, ID, Server, cut_stream, resume, whole
from tests.operator.vllm_plugin.continuation.stub_vllm import (
    CHAT,
    COMPLETIONS,
    NUMERICS,
    PROMPT,
    RESPONSES,
    StubVllm,
)

from paternoster_contract.stream_journal import JOURNAL, NOT_CONTINUED, RESUME, STREAM_ID
from paternoster_gateway.call.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_vllm.continuation import GATEWAY_ENV, is_rest_of_stream
from paternoster_vllm.middleware import API_KEYS_ENV, LimitsMiddleware
from paternoster_vllm.server_facts import ServerFacts

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 8}


@pytest.fixture
def server() -> Server:
    return Server(StubVllm("héllo".encode()))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
async def test_a_stream_has_a_journal_and_the_frames_of_vllm(server: Server, path: str) -> None:
    body = BODY if path == CHAT else {"model": "m", "prompt": PROMPT.decode(), "stream": True, "max_tokens": 3}
    answer = await server.call(body, CALL, path)
    assert answer.headers[JOURNAL] == NUMERICS
    stream = JournaledStream(NUMERICS, open_request_alone())
    frames = stream.feed(answer.content)
    assert frames == await whole(server, body, path)
    journal = stream.build_resumption(ANY_CALL).journal
    assert (len(journal.splitlines()), stream.num_frames) == (frames.count(b"\n\n"),) * 2
    assert server.vllm.bodies == [body]


async def test_a_journal_is_continued(server: Server) -> None:
    expected = await whole(server, BODY)
    for cut in range(1, expected.count(b"\n\n") + 1):
        stream, got = await cut_stream(server, BODY, CHAT, cut)
        journal = stream.build_resumption(ANY_CALL).journal
        answer = await server.call(json.dumps(BODY).encode() + journal, resume(journal, cut))
        assert (answer.status_code, answer.headers[JOURNAL]) == (200, NUMERICS)
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert got + stream.feed(answer.content) == expected
    assert server.vllm.bodies == [BODY] * len(server.vllm.bodies)


async def test_calls_of_no_gateway_pass_untouched(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = await server.call(BODY, {})
    monkeypatch.delenv(GATEWAY_ENV)
    forged = await server.call(BODY, CALL)
    for answer in (plain, forged):
        assert b"h" in answer.content
        assert b"journal" not in answer.content
        assert JOURNAL not in answer.headers
    assert plain.content != forged.content, "ids are drawn at random"
    assert server.vllm.bodies == [BODY, BODY]


async def test_calls_that_are_no_streams_pass_untouched(server: Server) -> None:
    answer = await server.call(BODY | {"stream": False}, CALL)
    assert JOURNAL not in answer.headers
    assert server.vllm.bodies == [BODY | {"stream": False}]


@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        (CHAT, {"presence_penalty": 0.5}, "presence_penalty"),
        (COMPLETIONS, {"use_beam_search": True}, "use_beam_search"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
        (RESPONSES, {"tools": [{"type": "function"}, {"type": "web_search"}]}, "tools of type web_search"),
    ],
)
async def test_what_no_engine_continues_is_named(server: Server, path: str, fields: dict[str, Any], name: str) -> None:
    body = BODY | fields
    stream, _ = await cut_stream(server, body, path, 3)
    journal = stream.build_resumption(ANY_CALL).journal
    answer = await server.call(json.dumps(body).encode() + journal, resume(journal, 3), path)
    assert (answer.status_code, answer.headers[NOT_CONTINUED]) == (400, name)
    assert name in answer.json()["error"]["message"]


async def test_a_vllm_whose_grammars_cannot_be_advanced_continues_no_structured_output(server: Server) -> None:
    server = Server(server.vllm, lambda _: server.vllm.facts(advances_grammars=False))
    body = BODY | {"response_format": {"type": "json_object"}}
    stream, _ = await cut_stream(server, body, CHAT, 2)
    journal = stream.build_resumption(ANY_CALL).journal
    answer = await server.call(json.dumps(body).encode() + journal, resume(journal, 2))
    assert answer.headers[NOT_CONTINUED] == "structured outputs"


async def test_a_vllm_that_lacks_what_is_needed_serves(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def read(_: Any) -> ServerFacts:
        raise AttributeError("no such thing")

    server = Server(server.vllm, read)
    for _ in range(2):
        answer = await server.call(BODY, CALL)
        assert b"[DONE]" in answer.content
        assert JOURNAL not in answer.headers
    assert caplog.text.count("streams cannot be continued: AttributeError: no such thing") == 1


@pytest.mark.parametrize(
    ("headers", "journal", "status", "fault"),
    [
        (resume(b"", 1, "vllm-b"), b"", 412, "began at an engine with vllm-b"),
        (resume(b"{}", 1), b"{}", 400, "no list"),
        ({STREAM_ID: "x"}, b"", 400, "32 hexadecimal"),
        (resume(b"", 3), b"", 400, "3 frames"),
        ({**CALL, RESUME: "x"}, b"", 400, "not a number of frames"),
    ],
)
async def test_a_forged_resume_is_refused(
    server: Server, headers: dict[str, str], journal: bytes, status: int, fault: str
) -> None:
    answer = await server.call(json.dumps(BODY).encode() + journal, headers)
    assert answer.status_code == status
    assert fault in answer.json()["error"]["message"]
    assert server.vllm.bodies == []


@pytest.mark.parametrize("frames", [0, 1])
async def test_a_call_that_is_no_stream_is_not_resumed(server: Server, frames: int) -> None:
    answer = await server.call(json.dumps(BODY | {"stream": False}).encode() + b"[]", resume(b"[]", frames))
    assert (answer.status_code, server.vllm.bodies) == (400, [])


async def test_a_stream_of_which_the_client_has_no_frame_begins_anew(server: Server) -> None:
    answer = await server.call(json.dumps(BODY).encode() + b"[]", resume(b"[]", 0))
    assert JournaledStream(NUMERICS, open_request_alone()).feed(answer.content) == await whole(server, BODY)


@pytest.mark.parametrize(
    ("frame", "end"),
    [
        (b'data: {"error":{"message":"EngineCore encountered an issue","code":500}}', b": failed\n\n: continue\n\n"),
        (b": keep-alive", b": continue\n\n"),
    ],
)
async def test_a_stream_that_vllm_ends_before_its_end_is_handed_over(server: Server, frame: bytes, end: bytes) -> None:
    server.vllm.breaks_at, server.vllm.break_frame = [2], frame
    answer = await server.call(BODY, CALL)
    assert answer.content.endswith(end)
    assert b"[DONE]" not in answer.content


async def test_a_body_that_is_too_long_to_look_into_passes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paternoster_vllm.continuation.LONGEST_BODY", 10)
    assert JOURNAL not in (await server.call(BODY, CALL)).headers
    assert server.vllm.bodies == [BODY]


async def test_the_routes_of_the_plugin_stand_before_the_streams(
    server: Server, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway").write_text("secret\n")
    monkeypatch.setenv(API_KEYS_ENV, str(tmp_path))
    layers = LimitsMiddleware(server.vllm)
    layers._app._read = lambda _: server.vllm.facts()
    server.asgi = layers  # type: ignore[assignment]
    assert (await server.call(BODY, CALL)).status_code == 401
    answer = await server.call(BODY, {**CALL, "Authorization": "Bearer secret"})
    assert answer.headers[JOURNAL] == NUMERICS


async def test_a_client_that_leaves_ends_the_answer() -> None:
    vllm = StubVllm(b"abcdefgh")
    vllm.pause = 0.01
    server, sent = Server(vllm), []

    messages = [{"type": "http.request", "body": json.dumps(BODY).encode()}]
    left = asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(STREAM_ID.lower().encode(), ID.encode().encode())]
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers}
    answer = asyncio.create_task(server(scope, receive, send))
    while len(sent) < 3:
        await asyncio.sleep(0.01)
    left.set()
    await answer
    assert vllm.aborted == 1


@pytest.mark.parametrize(
    ("headers", "is_rest"),
    [
        (resume(b"{}", 1), True),
        (resume(b"", 0), False),
        (CALL, False),
        ({RESUME: resume(b"{}", 1)[RESUME]}, False),
        ({**CALL, RESUME: "x"}, False),
        ({}, False),
    ],
)
def test_the_rest_of_a_stream_is_known_by_its_headers(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], *, is_rest: bool
) -> None:
    scope = {"headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()]}
    assert is_rest_of_stream(scope) is is_rest
    monkeypatch.delenv(GATEWAY_ENV)
    assert not is_rest_of_stream(scope), "no client's headers are believed"
