"""The layer before a stub of vLLM, and calls as a gateway sends them."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
from tests.operator.vllm_plugin.continuation.stub_vllm import CHAT, NUMERICS, StubVllm

from paternoster_contract.stream_journal import RESUME, STREAM_ID, Resume, StreamId
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import JournaledStream
from paternoster_http.open_requests import open_request_alone
from paternoster_vllm.continuation import StreamContinuation
from paternoster_vllm.drawn_ids import CURRENT, StreamDraws, replace_sources
from paternoster_vllm.engine_outputs import replace_methods
from paternoster_vllm.server_facts import ServerFacts
from paternoster_vllm.stream_journal import END

ID = StreamId("0" * 31 + "1", 1795792422)
CALL = {STREAM_ID: ID.encode()}
ANY_CALL = Call(CHAT, "m", b"", {})


class Server:
    """The layer before ``vllm``."""

    def __init__(self, vllm: StubVllm, read: Callable[[Any], ServerFacts] | None = None) -> None:
        self.vllm = vllm
        self.asgi = StreamContinuation(vllm, read or (lambda _: vllm.facts()))
        self.app = SimpleNamespace(state=SimpleNamespace())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self.app
        await self.asgi(scope, receive, send)

    async def call(self, body: Any, headers: dict[str, str], path: str = CHAT) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://vllm") as client:
            return await client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


async def whole(server: Server, body: dict[str, Any], path: str = CHAT) -> bytes:
    """What vLLM answers without the layer, with the ids of :data:`CALL`."""
    replace_sources()
    vllm = StubVllm(server.vllm.answer, server.vllm.tokens_a_step)
    replace_methods(vllm.client)  # ids of requests are none of the stream's
    token = CURRENT.set(StreamDraws(ID.hex, ID.created))
    try:
        return b"".join([frame + END async for frame in vllm.write_frames(body, path)])
    finally:
        CURRENT.reset(token)


def resume(journal: bytes, frames: int, numerics: str = NUMERICS) -> dict[str, str]:
    return {**CALL, RESUME: Resume(frames, len(journal), numerics).encode()}


async def cut_stream(server: Server, body: dict[str, Any], path: str, frames: int) -> tuple[JournaledStream, bytes]:
    """The first ``frames`` of a stream, and what its gateway has of it."""
    content = (await server.call(body, CALL, path)).content
    stream = JournaledStream(NUMERICS, open_request_alone())
    return stream, b"".join(stream.feed(frame + END) for frame in content.split(END)[:frames])


async def resume_stream(server: Server, stream: JournaledStream, body: dict[str, Any], path: str) -> httpx.Response:
    """What follows."""
    journal = stream.build_resumption(ANY_CALL).journal
    return await server.call(json.dumps(body).encode() + journal, resume(journal, stream.num_frames), path)
