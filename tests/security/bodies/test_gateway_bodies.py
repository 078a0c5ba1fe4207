"""Bodies that are the client's fault are its 400 at the gateway, and cost the others nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.app import FORWARDED, create_app
from paternoster_gateway.proxy import body as bodies
from paternoster_gateway.proxy.body import (
    MAX_CONTAINERS,
    TOKENS_AT_ONCE,
    BodyFields,
    count_byte,
    read_fields,
    refuse_costly,
)
from paternoster_http.errors.anthropic_paths import is_anthropic

PATH = "/v1/chat/completions"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Client of a gateway whose model ``m`` has no replica and holds no request."""
    routes = tmp_path / "routes.json"
    routes.write_text(RoutingTable(models={"m": ModelRoute(hold=False)}).model_dump_json())
    gateway = create_app(str(routes))
    transport = httpx.ASGITransport(gateway, raise_app_exceptions=False)
    async with (
        gateway.router.lifespan_context(gateway),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.01)
        yield client


def error(answer: httpx.Response) -> str:
    """Its message; of the form of its path's API, or the test fails."""
    path = answer.request.url.path
    if path.startswith("/v2/"):
        assert answer.json() == {"id": answer.headers["x-request-id"], "message": answer.json()["message"]}
        return str(answer.json()["message"])
    body = answer.json()["error"]
    assert answer.json().get("detail") == (body["message"] if path in ("/v1/embeddings", "/v1/rerank") else None)
    if is_anthropic(path):
        assert set(body) == {"message", "type"}
        return str(body["message"])
    assert set(body) == {"message", "type", "param", "code"}
    assert body["code"] in (None, "model_not_found", "invalid_api_key", "rate_limit_exceeded")
    assert len(body["message"]) < 1000
    return str(body["message"])


@pytest.mark.parametrize(
    "body",
    [
        rb'{"model": "\ud800"}',
        rb'{"model": "m", "prompt": "\udfff"}',
        rb'{"model": "m", "\udc00\ud800": 1}',
        b'{"model": "m", "prompt": "\xed\xa0\x80"}',
        b'{"model": "m", "prompt": ' + b"[" * 100_000,
        b'{"model": "m", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 100_000,
        b'{"model": "m", "max_tokens": ' + b"1" * 100_000 + b"}",
        b"",
        b"\xff\xfe",
        b"null",
        b"[" + b",".join([b"1"] * 100_000) + b"]",
        b"  [{}]",
        b'"' + b"a" * 100_000 + b'"',
        b'{"model": ["m"]}',
        b'{"model": 1}',
        b'{"a": [{"model": [1]}], "model"\n:\t{"a": 1}}',
        b'{"model": "m", "model": [' + b",".join([b"1"] * 100_000) + b"]}",
    ],
    ids=lambda body: repr(body[:30]),
)
async def test_bodies_of_no_use_are_answered_400(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post(PATH, content=body)
    assert answer.status_code == 400
    assert error(answer)


@pytest.mark.parametrize("path", ["/v2/embed", "/v2/rerank", "/v1/embeddings", "/v1/rerank", "/v1/messages", PATH])
async def test_refusals_are_in_the_form_of_the_paths_api(client: httpx.AsyncClient, path: str) -> None:
    answers = [await client.post(path, json={"model": name}) for name in ("m", "another")]
    assert [answer.status_code for answer in answers] == [503, 404]
    assert "`another` does not exist" in [error(answer) for answer in answers][1]


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/files", "/admin/drain", "/openapi.json", "//v1/completions", "/v2/a"]
)
async def test_unknown_paths_are_an_openai_error(client: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await client.request(method, path, content=b"{}")
        assert answer.status_code == 404
        assert error(answer)


async def test_unknown_methods_are_an_openai_error(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", PATH), ("DELETE", "/v1/models"), ("PATCH", "/health")):
        answer = await client.request(method, path)
        assert answer.status_code == 405
        assert answer.headers["Allow"]
        assert error(answer)


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b"[" + b",".join([b"[]"] * MAX_CONTAINERS) + b"]", 400),
        (b'["[{", ' + b",".join([b'{"a":[]}'] * (MAX_CONTAINERS // 2)) + b"]", 400),
        (b'"' + b"[{" * MAX_CONTAINERS + b'"', 503),
        (b'"' + rb"\\\"[{" * MAX_CONTAINERS + b'"', 503),
        (b"[" + b",".join([b"1"] * 1_000_000) + b"]", 503),
        (rb'{"model": ["a"], "\"model\": [": {"model": {}}}', 503),
        (b"[" + b",".join([b"[]"] * (MAX_CONTAINERS - 2)) + b"]", 503),
    ],
    ids=["arrays", "objects", "brackets in a text", "escapes in a text", "numbers", "other models", "the most"],
)
async def test_arrays_and_objects_are_counted_before_they_are_parsed(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, value: bytes, status: int
) -> None:
    parsed: list[int] = []

    def parse(data: bytes) -> BodyFields:
        parsed.append(len(data))
        return read_fields(data)

    monkeypatch.setattr(bodies, "read_fields", parse)
    answer = await client.post(PATH, content=b'{"prompt": ' + value + b', "model": "m"}')
    assert answer.status_code == status
    assert bool(parsed) == (status != 400)
    assert status != 400 or f"more than {MAX_CONTAINERS} arrays and objects" in error(answer)


@given(
    pieces=st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([b"{", b"{{{{", b"[{"])), max_size=12),
    rest=st.integers(0, 3000),
)
def test_a_byte_is_counted_as_bytes_count_it(pieces: list[tuple[int, bytes]], rest: int) -> None:
    body = b"".join(b"a" * length + brackets for length, brackets in pieces) + b"a" * rest
    for byte in (b"{", b"[", b"a", b"b"):
        assert count_byte(body, byte) == body.count(byte)


async def test_counting_gives_others_their_turn() -> None:
    body = b'{"a": "' + b"[" * (MAX_CONTAINERS + 1) + b'", "b": [' + b",".join([b'""'] * 100_000) + b"]}"
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await refuse_costly(body)
    counting.cancel()
    assert turns >= 100_000 // TOKENS_AT_ONCE - 1


async def test_a_long_name_is_told_shortened(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"model": "x" * 1_000_000})
    assert answer.status_code == 404
    assert error(answer)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.sampled_from(["m", "other", "\ud800", "\x00", ""]) | TREES
BODIES = st.one_of(
    st.binary(max_size=200),
    TREES.map(lambda tree: json.dumps(tree).encode()),
    st.builds(lambda name, rest: json.dumps({"rest": rest, "model": name}).encode(), NAMES, TREES),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=BODIES, path=st.sampled_from(FORWARDED))
async def test_no_body_is_a_fault_of_the_gateway(client: httpx.AsyncClient, body: bytes, path: str) -> None:
    answer = await client.post(path, content=body)
    assert answer.status_code in (400, 404, 503), answer.text
    assert error(answer)
    assert (await client.get("/health")).status_code == 200
