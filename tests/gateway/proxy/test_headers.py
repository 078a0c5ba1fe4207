"""Headers of answers: each once, and an id by which every request can be found again."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, serving, stats, until

from paternoster_contract.http.headers import REQUEST_ID
from paternoster_contract.http.routes import ROUTES, AtGateway
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.app import create_app

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PAGE = "https://page.example"
BODY = {"model": "m", "messages": [], "prompt": "up"}
MESSAGES = ("/v1/messages", "/v1/messages/count_tokens")
FORWARDED = [route.path for route in ROUTES if route.gateway is AtGateway.FORWARDS]
ANSWERED = [route.path.replace("{model:path}", "m") for route in ROUTES if route.gateway is AtGateway.ANSWERS]


def talkative(status: int = 200, kind: str = "application/json") -> Behave:
    """All that an engine may set, and its server sets (Date, Server), and a header that comes twice by right."""

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID, "")
        response = web.Response(body=b'{"error": {"message": "no"}}', status=status, content_type=kind)
        own = {
            "x-request-id": given, "cache-control": "no-cache", "x-accel-buffering": "no",
            "access-control-allow-origin": "*", "access-control-expose-headers": "X-Request-Id", "vary": "Origin",
            "x-paternoster-ignored": "custom", "retry-after": "7", "keep-alive": "timeout=5", "server": "engine",
        }  # fmt: skip
        response.headers.update(own | ({"request-id": given} if request.path in MESSAGES else {}))
        response.headers.add("x-ratelimit-twice", "1")
        response.headers.add("x-ratelimit-twice", "2")
        return response

    return behave


@pytest.fixture
async def paged_door(table: Path) -> AsyncIterator[Door]:
    """A gateway that pages of one origin may call."""
    app = create_app(str(table), origins=[PAGE])
    async with serving(app, HttpLimits(max_body_bytes=2**16)) as url:
        yield Door(url, table)


async def published(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine) -> None:
    door.publish(*engines)
    await until(lambda: stats(client, door), lambda models: "m" in models)


def seen_once(response: aiohttp.ClientResponse) -> None:
    """Every header once, an id among them; also Anthropic's on its paths."""
    many = Counter(name.decode().lower() for name, _ in response.raw_headers)
    many.pop("x-ratelimit-twice", None)
    assert {name: count for name, count in many.items() if count > 1} == {}
    assert many["date"] == 1
    assert response.headers[REQUEST_ID]
    anthropics = response.url.path.rstrip("/") in MESSAGES
    assert response.headers.get("request-id") == (response.headers[REQUEST_ID] if anthropics else None)


@pytest.mark.parametrize(("status", "kind"), [(200, "application/json"), (200, "text/event-stream"),
                                              (400, "application/json"), (503, "application/json")])  # fmt: skip
async def test_an_engines_answer_has_each_header_once(
    client: aiohttp.ClientSession, paged_door: Door, start: Start, status: int, kind: str
) -> None:
    await published(client, paged_door, await start("a", talkative(status, kind)))
    for path in FORWARDED:
        for headers in ({}, {"Origin": PAGE}, {REQUEST_ID: "mine", "Origin": "https://another.example"}):
            async with client.post(paged_door.url + path, json=BODY, headers=headers) as response:
                assert response.status == status, path
                seen_once(response)
                assert response.headers[REQUEST_ID] == headers.get(REQUEST_ID, response.headers[REQUEST_ID])
                assert response.headers.getall("x-ratelimit-twice") == ["1", "2"]
                assert "keep-alive" not in response.headers
                # Which pages may call is the gateway's to say.
                allowed = PAGE if headers.get("Origin") == PAGE else None
                assert response.headers.get("access-control-allow-origin") == allowed
                readable = response.headers.get("access-control-expose-headers", "")
                assert {"x-request-id", "request-id"} <= set(readable.lower().split(", ")) or allowed is None


async def test_answers_of_the_gateway_itself_have_a_request_id(client: aiohttp.ClientSession, paged_door: Door) -> None:
    await published(client, paged_door)
    paths = [*FORWARDED, *ANSWERED, "/", "/none", "/v1/models/none"]
    for path in paths:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE"):
            async with client.request(method, paged_door.url + path, data=b"{", headers={REQUEST_ID: "mine"}) as answer:
                seen_once(answer)
                assert answer.headers[REQUEST_ID] == "mine", (method, path)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages", "/v1/messages/", "/v2/embed", "/v1/embeddings"])
async def test_refusals_before_a_request_is_complete_have_a_request_id(
    client: aiohttp.ClientSession, paged_door: Door, path: str
) -> None:
    async with client.post(paged_door.url + path, data=b"x" * 2**17, headers={REQUEST_ID: "mine"}) as response:
        assert response.status == 413
        seen_once(response)
        assert response.headers[REQUEST_ID] == "mine"
        body = await response.json()
    if "messages" in path:
        assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", "request_too_large", "mine")
    elif path == "/v2/embed":
        assert body == {"id": "mine", "message": body["message"]}
    else:
        assert body.get("detail") == (body["error"]["message"] if path == "/v1/embeddings" else None)
        assert body["error"]["type"] == "RequestTooLargeError"


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", "ünsafe"])
async def test_an_invalid_request_id_is_replaced(
    client: aiohttp.ClientSession, paged_door: Door, start: Start, given: str
) -> None:
    engine = await start("a", talkative())
    await published(client, paged_door, engine)
    async with client.post(f"{paged_door.url}/v1/completions", json=BODY, headers={REQUEST_ID: given}) as response:
        made = response.headers[REQUEST_ID]
    assert made.isalnum()
    assert len(made) == 32
    assert engine.headers[-1][REQUEST_ID] == made


async def test_the_official_clients_read_the_request_id(
    client: aiohttp.ClientSession, paged_door: Door, start: Start
) -> None:
    await published(client, paged_door, await start("a", talkative(400)))
    message: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "up"}]}
    own = {REQUEST_ID: "mine"}
    async with anthropic.AsyncAnthropic(base_url=paged_door.url, api_key="x", max_retries=0) as asking:
        for model in ("m", "none"):
            with pytest.raises(anthropic.APIStatusError) as refused:
                await asking.messages.create(**message | {"model": model}, extra_headers=own)
            assert refused.value.request_id == "mine"
            assert refused.value.body["request_id"] == "mine"  # type: ignore[index]
    async with openai.AsyncOpenAI(base_url=f"{paged_door.url}/v1", api_key="x", max_retries=0) as asking_openai:
        listed = await asking_openai.models.list(extra_headers=own)
        assert listed._request_id == "mine"
        with pytest.raises(openai.NotFoundError) as missing:
            await asking_openai.completions.create(model="none", prompt="up", extra_headers=own)
        assert missing.value.request_id == "mine"


async def test_an_error_in_a_stream_has_the_request_id(
    client: aiohttp.ClientSession, paged_door: Door, start: Start
) -> None:
    async def breaking(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: ping\ndata: {}\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    await published(client, paged_door, await start("a", breaking))
    async with client.post(f"{paged_door.url}/v1/messages", json=BODY, headers={REQUEST_ID: "mine"}) as response:
        text = await response.text()
    assert '"request_id": "mine"' in text.split("event: error")[1]
