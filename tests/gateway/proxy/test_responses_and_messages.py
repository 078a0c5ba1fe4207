"""OpenAI's and Anthropic's official clients at the gateway: key headers, errors, streams of the newer APIs."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from tests.gateway.fakes import Door

from paternoster_contract.access.keys import digest_key
from paternoster_e2e.fakes.engine import Behave, FakeEngine

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "up"}]}
MESSAGE = (
    '{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, '
    '"stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 0}}'
)
BEGIN = f'event: message_start\ndata: {{"type": "message_start", "message": {MESSAGE}}}\n\n'


@asynccontextmanager
async def anthropics(door: Door, **how: Any) -> AsyncIterator[anthropic.AsyncAnthropic]:
    # Without a key of its own it looks for one in the environment.
    how = {"api_key": "right"} | how
    async with anthropic.AsyncAnthropic(base_url=door.url, max_retries=0, **how) as made:
        yield made


async def seen(http: aiohttp.ClientSession, door: Door) -> None:
    while True:
        async with http.get(f"{door.url}/v1/models", headers={"X-Api-Key": "right"}) as response:
            if [entry["id"] for entry in (await response.json())["data"]] == ["m"]:
                return


async def whole(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    return web.Response(text=MESSAGE, content_type="application/json")


async def refusing(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}, "request_id": "r"}
    return web.json_response(error, status=400)


async def breaking(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(BEGIN.encode())
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize("how", [{"api_key": "right"}, {"api_key": None, "auth_token": "right"}])
async def test_a_key_is_accepted_in_either_header(
    client: aiohttp.ClientSession, door: Door, start: Start, how: dict[str, Any]
) -> None:
    engine = await start("a", whole)
    door.publish(engine, key_digests=[digest_key("right")])
    await seen(client, door)
    async with anthropics(door, **how) as asking:
        assert (await asking.messages.create(**REQUEST)).id == "msg_1"
    assert not {"authorization", "x-api-key"} & {name.lower() for name in engine.headers[0]}


async def test_a_wrong_key_is_an_error_in_anthropics_form(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", whole), key_digests=[digest_key("right")])
    await seen(client, door)
    async with anthropics(door, api_key="wrong") as asking:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await asking.messages.create(**REQUEST)
    message = "Missing or wrong key in the Authorization or X-Api-Key header."
    assert refused.value.body == {
        "type": "error", "error": {"type": "authentication_error", "message": message},
        "request_id": refused.value.request_id,
    }  # fmt: skip


async def test_errors_of_gateway_and_engines_raise_in_anthropics_client(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", refusing))
    await seen(client, door)
    async with anthropics(door) as asking:
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await asking.messages.create(**REQUEST | {"model": "other"})
        with pytest.raises(anthropic.BadRequestError) as bad:
            await asking.messages.count_tokens(model="m", messages=REQUEST["messages"])
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    assert bad.value.body == {
        "type": "error", "error": {"type": "invalid_request_error", "message": "no"}, "request_id": "r",
    }  # fmt: skip


async def test_a_stream_that_breaks_off_raises_in_the_official_client(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", breaking))
    await seen(client, door)
    async with anthropics(door) as asking:
        stream = await asking.messages.create(**REQUEST, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            async for event in stream:
                assert event.type == "message_start"


async def breaking_response(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    event = {"type": "response.output_text.delta", "sequence_number": 0, "delta": "a", "item_id": "m"}
    data = event | {"output_index": 0, "content_index": 0, "logprobs": []}
    await response.write(f"event: {event['type']}\ndata: {json.dumps(data)}\n\n".encode())
    assert request.transport is not None
    request.transport.abort()
    return response


async def test_a_response_that_breaks_off_raises_in_the_official_client(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", breaking_response))
    await seen(client, door)
    async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="right", max_retries=0) as asking:
        stream = await asking.responses.create(model="m", input="up", stream=True)
        with pytest.raises(openai.APIError, match="broke off"):
            async for event in stream:
                assert event.type == "response.output_text.delta"
