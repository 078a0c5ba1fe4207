"""The layer that writes journals and continues streams, before an application that answers as vLLM does."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.operator.vllm_plugin.continuation.stub_vllm import NUMERICS, PROMPT, StubVllm, facts

from paternoster_contract.stream_journal import JOURNAL, RESUME, STREAM_ID, Resume, StreamId
from paternoster_gateway.proxy.call import Call
from paternoster_gateway.proxy.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_vllm.continuation import GATEWAY_ENV, StreamContinuation, is_rest_of_stream
from paternoster_vllm.middleware import API_KEYS_ENV, LimitsMiddleware
from paternoster_vllm.server_facts import ServerFacts
from paternoster_vllm.streamed_call import CHAT, COMPLETIONS

ANY_CALL = Call("/v1/chat/completions", "m", b"", {})

CALL = {STREAM_ID: StreamId("0" * 32, 1795792422).encode()}
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 8}


class Server:
    """The layer before ``vllm``."""

    def __init__(self, vllm: StubVllm, read: Callable[[Any], ServerFacts]) -> None:
        self.vllm = vllm
        self.asgi = StreamContinuation(vllm, read)
        self.app = SimpleNamespace(state=SimpleNamespace())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self.app
        await self.asgi(scope, receive, send)

    async def call(self, body: Any, headers: dict[str, str], path: str = CHAT) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://vllm") as client:
            return await client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GATEWAY_ENV, "1")


@pytest.fixture
def server() -> Server:
    return Server(StubVllm("héllo".encode()), lambda _: facts())


async def whole(server: Server, body: Any, path: str = CHAT) -> bytes:
    """What vLLM answers without the layer."""
    return (await Server(StubVllm(bytes(server.vllm.answer[:-1])), lambda _: 1 / 0).call(body, {}, path)).content  # type: ignore[arg-type,return-value]


def resume(journal: bytes, frames: int, numerics: str = NUMERICS) -> dict[str, str]:
    return {**CALL, RESUME: Resume(frames, len(journal), numerics).encode()}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_has_a_journal_and_the_frames_of_vllm(server: Server, path: str) -> None:
    body = BODY if path == CHAT else {"model": "m", "prompt": PROMPT.decode(), "stream": True, "max_tokens": 3}
    answer = await server.call(body, CALL, path)
    assert answer.headers[JOURNAL] == NUMERICS
    stream = JournaledStream(NUMERICS, open_request_alone())
    frames = stream.feed(answer.content)
    assert frames == await whole(server, body, path)
    assert (len(stream.build_resumption(ANY_CALL).journal.splitlines()), stream.num_frames) == (
        frames.count(b"\n\n"),
    ) * 2
    assert server.vllm.bodies == [{**body, "return_token_ids": True}]


async def test_a_journal_is_continued(server: Server) -> None:
    expected = await whole(server, BODY)
    for cut in range(1, expected.count(b"\n\n") + 1):
        first = (await server.call(BODY, CALL)).content.split(b"\n\n")[:cut]
        stream = JournaledStream(NUMERICS, open_request_alone())
        got = stream.feed(b"\n\n".join([*first, b""]))
        journal = stream.build_resumption(ANY_CALL).journal
        answer = await server.call(json.dumps(BODY).encode() + journal, resume(journal, cut))
        assert (answer.status_code, answer.headers[JOURNAL]) == (200, NUMERICS)
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert got + stream.feed(answer.content) == expected
    rest = [body for body in server.vllm.bodies if "prompt" in body]
    assert rest, "what was left was asked for"
    assert all(len(body["prompt"]) + body["max_tokens"] == len(PROMPT) + 8 for body in rest)


async def test_calls_of_no_gateway_pass_untouched(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = await server.call(BODY, {})
    monkeypatch.delenv(GATEWAY_ENV)
    forged = await server.call(BODY, CALL)
    for answer in (plain, forged):
        assert answer.content == await whole(server, BODY)
        assert JOURNAL not in answer.headers
    assert server.vllm.bodies == [BODY, BODY]


@pytest.mark.parametrize("fields", [{"n": 2}, {"stream": False}, {"tools": [{}]}])
async def test_calls_that_are_not_continued_pass_untouched(server: Server, fields: dict[str, Any]) -> None:
    answer = await server.call(BODY | fields, CALL)
    assert JOURNAL not in answer.headers
    assert server.vllm.bodies == [BODY | fields]


async def test_chats_that_a_parser_reads_pass_untouched(server: Server) -> None:
    server = Server(server.vllm, lambda _: facts(parses_chat=True))
    assert JOURNAL not in (await server.call(BODY, CALL)).headers
    body = {"model": "m", "prompt": PROMPT.decode(), "stream": True}
    assert JOURNAL in (await server.call(body, CALL, COMPLETIONS)).headers


async def test_a_vllm_that_lacks_what_is_needed_serves(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def read(_: Any) -> ServerFacts:
        raise AttributeError("no such thing")

    server = Server(server.vllm, read)
    for _ in range(2):
        assert (await server.call(BODY, CALL)).content == await whole(server, BODY)
    assert caplog.text.count("streams cannot be continued: AttributeError: no such thing") == 1


@pytest.mark.parametrize(
    ("headers", "journal", "status", "fault"),
    [
        (resume(b"", 1, "vllm-b"), b"", 412, "began at an engine with vllm-b"),
        (resume(b"[]", 1), b"[]", 400, "no object"),
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
async def test_a_call_that_is_not_continued_is_not_resumed(server: Server, frames: int) -> None:
    answer = await server.call(json.dumps(BODY | {"n": 2}).encode() + b"[]", resume(b"[]", frames))
    assert (answer.status_code, server.vllm.bodies) == (400, [])


async def test_a_stream_of_which_the_client_has_no_frame_begins_anew(server: Server) -> None:
    answer = await server.call(json.dumps(BODY).encode() + b"[]", resume(b"[]", 0))
    assert JournaledStream(NUMERICS, open_request_alone()).feed(answer.content) == await whole(server, BODY)


async def test_vllm_aborts_what_a_stop_string_ends() -> None:
    vllm = StubVllm(b"abcdefgh")
    server = Server(vllm, lambda _: facts())
    body = BODY | {"stop": ["cd"]}
    first = b"\n\n".join([*(await server.call(body, CALL)).content.split(b"\n\n")[:4], b""])
    stream = JournaledStream(NUMERICS, open_request_alone())
    stream.feed(first)
    journal = stream.build_resumption(ANY_CALL).journal
    vllm.pause, sent = 0.01, vllm.sent
    answer = await server.call(json.dumps(body).encode() + journal, resume(journal, 4))
    assert b'"finish_reason":"stop","stop_reason":"cd"' in answer.content
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert (vllm.aborted, vllm.sent - sent) == (1, 1)


@pytest.mark.parametrize(
    ("frame", "end"),
    [
        (b'data: {"error":{"message":"EngineCore encountered an issue","code":500}}', b": failed\n\n: continue\n\n"),
        (b": keep-alive", b": continue\n\n"),
    ],
)
async def test_a_stream_that_vllm_ends_before_its_end_is_handed_over(server: Server, frame: bytes, end: bytes) -> None:
    server.vllm.break_after, server.vllm.break_frame = 2, frame
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
    layers._app._read = lambda _: facts()  # type: ignore[method-assign]
    server.asgi = layers  # type: ignore[assignment]
    assert (await server.call(BODY, CALL)).status_code == 401
    answer = await server.call(BODY, {**CALL, "Authorization": "Bearer secret"})
    assert answer.headers[JOURNAL] == NUMERICS


async def test_a_client_that_leaves_ends_the_answer() -> None:
    vllm = StubVllm(b"abcdefgh")
    vllm.pause = 0.01
    server, sent = Server(vllm, lambda _: facts()), []

    messages = [{"type": "http.request", "body": json.dumps(BODY).encode()}]
    left = asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(STREAM_ID.lower().encode(), CALL[STREAM_ID].encode())]
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
