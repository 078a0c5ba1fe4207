"""A server that has the model under a name of its own gets that name, and clients read the served name."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.fakes import Door, route

from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.proxy.body import rename_in_answer, rename_in_body

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
UPSTREAM = "/models/smol lm"


def pinned(chunk: int = 7) -> Behave:
    """Engine like ``transformers serve`` with a model: other names are 400; answers have its own with a revision."""

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] != UPSTREAM:
            detail = f"Server is pinned to '{UPSTREAM}'; requested '{body['model']}'."
            return web.json_response({"detail": detail}, status=400)
        if not body.get("stream"):
            return web.json_response({"object": "chat.completion", "model": f"{UPSTREAM}@main", "choices": []})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = [{"model": UPSTREAM, "choices": [{"delta": {"content": text}}]} for text in ("a", '"model": "b"')]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"
        for at in range(0, len(text), chunk):
            await response.write(text[at : at + chunk])
            await asyncio.sleep(0)
        return response

    return behave


async def publish(client: aiohttp.ClientSession, door: Door, engine: FakeEngine, upstream: str) -> None:
    row = route(engine, aliases=["short"])
    row.replicas[0] = dataclasses.replace(row.replicas[0], upstream_model=upstream)
    door.publish_models(**{"lifts/smol": row})
    while True:
        async with client.get(f"{door.url}/v1/models") as response:
            if (await response.json())["data"]:
                return
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", ["lifts/smol", "short"])
async def test_a_pinned_server_serves_the_fleets_name(
    client: aiohttp.ClientSession, door: Door, start: Start, name: str
) -> None:
    engine = await start("a", pinned())
    await publish(client, door, engine, UPSTREAM)
    body = {"messages": [{"role": "user", "content": '"model": "x"'}], "model": name, "seed": 12345678901234567890}
    async with client.post(f"{door.url}/v1/chat/completions", json=body, headers={"Accept-Encoding": "gzip"}) as got:
        assert (got.status, (await got.json())["model"]) == (200, "lifts/smol")
    assert json.loads(engine.bodies[0]) == {**body, "model": UPSTREAM}
    assert engine.headers[0]["Accept-Encoding"] == "identity", "a compressed answer has no names to replace"
    async with client.post(f"{door.url}/v1/chat/completions", json={**body, "stream": True}) as got:
        events = [line for line in (await got.text()).split("\n\n") if line]
    assert events[-1] == "data: [DONE]"
    frames = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert [frame["model"] for frame in frames] == ["lifts/smol"] * 2
    assert [frame["choices"][0]["delta"]["content"] for frame in frames] == ["a", '"model": "b"']


async def test_without_such_a_name_a_pinned_server_refuses_the_fleets(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", pinned())
    await publish(client, door, engine, "")
    async with client.post(f"{door.url}/v1/chat/completions", json={"model": "short", "messages": []}) as got:
        assert got.status == 400
        assert "Server is pinned" in await got.text()


@pytest.mark.parametrize(
    ("body", "renamed"),
    [
        (b'{"model":"m"}', b'{"model":"u/\\"x"}'),
        (b'{ "model" :\n"m", "stop": ["model"]}', b'{ "model" :\n"u/\\"x", "stop": ["model"]}'),
        (b'{"model":"a","x":{"model":"b"},"model":"c"}', b'{"model":"u/\\"x","x":{"model":"b"},"model":"u/\\"x"}'),
        (b'{"\\u006dodel":"m","x":"model"}', b'{"\\u006dodel":"u/\\"x","x":"model"}'),
        (b'{"x":"\\"model\\":\\"m\\"","model":"m"}', b'{"x":"\\"model\\":\\"m\\"","model":"u/\\"x"}'),
        (b'{"messages":[{"model":"m"}]}', b'{"messages":[{"model":"m"}]}'),
        (b'{"a":"model","model":"m"}', b'{"a":"model","model":"u/\\"x"}'),
    ],
)
async def test_the_name_in_a_body_is_replaced_and_nothing_else(body: bytes, renamed: bytes) -> None:
    assert await rename_in_body(body, 'u/"x') == renamed


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["model", '"model": "m"']),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(fields=st.dictionaries(st.text(max_size=5), VALUES, max_size=4), name=NAMES, ascii_only=st.booleans())
def test_any_body_has_the_other_name_and_the_same_fields(fields: dict[str, Any], name: str, ascii_only: bool) -> None:
    body = json.dumps({**fields, "model": "served"}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    renamed = asyncio.run(rename_in_body(body, name))
    assert json.loads(renamed) == {**json.loads(body), "model": name}


async def collect(pieces: list[bytes], upstream: str, served: str) -> list[bytes]:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [piece async for piece in rename_in_answer(chunks(), upstream, served)]


@settings(deadline=None)
@given(
    contents=st.lists(VALUES, max_size=4),
    upstream=NAMES,
    revision=st.sampled_from(["", "@main"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    compact=st.booleans(),
)
def test_however_an_answer_is_cut_its_names_are_the_served_ones(
    contents: list[Any], upstream: str, revision: str, cuts: list[int], compact: bool
) -> None:
    separators = (",", ":") if compact else None
    texts = [json.dumps(value) for value in contents]

    def write_events(model: str) -> bytes:
        frames = [{"response": {"model": model}, "content": text, "model": model} for text in texts]
        return b"".join(b"data: " + json.dumps(f, separators=separators).encode() + b"\n\n" for f in frames)

    text = write_events(upstream + revision)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(bounds)]
    renamed = b"".join(asyncio.run(collect(pieces, upstream, "served/name")))
    assert renamed == write_events("served/name")


async def test_whole_events_are_passed_on_at_once_and_empty_pieces_stay() -> None:
    first, second = b'data: {"model":"u","x":1}\n\n', b'data: {"model":"other"}\n\n'
    assert await collect([first, b"", second], "u", "s") == [b'data: {"model":"s","x":1}\n\n', b"", second]


async def test_an_engine_cannot_make_the_gateway_keep_an_answer() -> None:
    """What waits for the next piece is a name at most."""
    pieces = [b'{"model": "', *[b"x" * 1000] * 100]
    received, passed = 0, 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal received
        for piece in pieces:
            received += len(piece)
            assert received - passed < 5000
            yield piece

    async for piece in rename_in_answer(chunks(), "u", "s"):
        passed += len(piece)
    assert passed == received
