"""The gateway checks clients' keys, and sends them to no engine."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.fakes import Door, route, stats, until

from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.admission.admission import ClientAdmission, admit_request
from paternoster_gateway.errors import GatewayError

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "up"}]}
FLEET_KEYS = [digest_key("old"), digest_key("new")]


async def chat(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    message = {"role": "assistant", "content": "Going up."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return web.json_response({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})


@pytest.fixture
async def sdk(door: Door) -> AsyncIterator[Callable[[str], openai.AsyncOpenAI]]:
    """OpenAI's client with a key."""
    clients = []

    def make(key: str) -> openai.AsyncOpenAI:
        clients.append(openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key=key, max_retries=0))
        return clients[-1]

    yield make
    for each in clients:
        await each.close()


Sdk = Callable[[str], openai.AsyncOpenAI]


async def wait_for_table(client: aiohttp.ClientSession, door: Door) -> None:
    await until(lambda: stats(client, door), lambda models: "m" in models)


async def test_each_key_of_a_fleet_is_accepted_and_sent_to_no_engine(
    client: aiohttp.ClientSession, door: Door, start: Start, sdk: Sdk
) -> None:
    engine = await start("a", chat)
    door.publish(engine, key_digests=FLEET_KEYS)
    await wait_for_table(client, door)
    for key in ("old", "new"):
        answer = await sdk(key).chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert answer.choices[0].message.content == "Going up."
    assert len(engine.headers) == 2
    assert not any("Authorization" in headers for headers in engine.headers)


@pytest.mark.parametrize("ready", [True, False], ids=["awake", "asleep"])
@pytest.mark.parametrize("hold", [True, False], ids=["holds", "rejects"])
async def test_a_request_without_a_key_of_the_fleet_gets_401_whether_or_not_a_replica_is_ready(
    client: aiohttp.ClientSession, door: Door, start: Start, sdk: Sdk, ready: bool, hold: bool
) -> None:
    engine = await start("a", chat)
    door.publish(engine, ready=ready, key_digests=FLEET_KEYS, hold=hold)
    await wait_for_table(client, door)
    for key in ("another", digest_key("old"), "old2", "ol"):
        with pytest.raises(openai.AuthenticationError) as refused:
            await sdk(key).chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert refused.value.body == {
            "message": "Missing or wrong key in the Authorization or X-Api-Key header.",
            "type": "AuthenticationError",
            "param": None,
            "code": "invalid_api_key",
        }
    for headers in ({}, {"Authorization": "Basic old"}, {"Authorization": "old"}, {"X-Api-Key": "another"}):
        async with client.post(f"{door.url}/tokenize", json=CHAT, headers=headers) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert engine.bodies == []
    numbers = (await stats(client, door))["m"]
    assert [numbers[name] for name in ("held", "refused", "in_flight", "requests_total")] == [0, 0, 0, 0]
    async with client.get(f"{door.url}/metrics") as response:
        text, counted = await response.text(), "paternoster_gateway_requests_total"
    for path, times in (("/v1/chat/completions", 4), ("/tokenize", 4)):
        assert f'{counted}{{code="401",model="m",route="{path}"}} {times}.0' in text


async def test_a_long_body_is_not_read_if_its_key_opens_no_model(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", chat)
    door.publish_models(m=route(engine, key_digests=FLEET_KEYS), n=route(engine, key_digests=[digest_key("n")]))
    await wait_for_table(client, door)

    async def send_request(key: str, head: str) -> int:
        reader, writer = await asyncio.open_connection(*door.url.removeprefix("http://").split(":"))
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\n{head}\r\n\r\n".encode())
        async with asyncio.timeout(10):
            line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    for key in ("", "another"):
        for head in ("Content-Length: 65537", "Transfer-Encoding: chunked"):
            assert await send_request(key, head) == 401, "without a byte of the body"
    for key, head in (("n", "Content-Length: 65537"), ("another", "Content-Length: 65536")):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await send_request(key, head)
    door.publish_models(m=route(engine, key_digests=FLEET_KEYS), n=route(engine))

    async def waits() -> bool:
        try:
            async with asyncio.timeout(0.3):
                await send_request("another", "Transfer-Encoding: chunked")
        except TimeoutError:
            return True
        return False

    await until(waits, bool)


async def test_an_empty_list_of_keys_refuses_every_request_and_no_list_accepts_every_one(
    client: aiohttp.ClientSession, door: Door, start: Start, sdk: Sdk
) -> None:
    engine = await start("a", chat)
    door.publish_models(m=route(engine, key_digests=[]), free=route(engine))
    await wait_for_table(client, door)
    with pytest.raises(openai.AuthenticationError):
        await sdk("old").chat.completions.create(**CHAT)  # type: ignore[call-overload]
    assert (await sdk("any").chat.completions.create(**{**CHAT, "model": "free"})).choices  # type: ignore[call-overload]
    assert "Authorization" not in engine.headers[0], "a key that the fleet does not need is not forwarded either"


async def test_a_key_of_one_fleet_opens_no_other_and_an_unknown_model_is_404_for_every_key(
    client: aiohttp.ClientSession, door: Door, start: Start, sdk: Sdk
) -> None:
    engine = await start("a", chat)
    door.publish_models(m=route(engine, key_digests=FLEET_KEYS), b=route(engine, key_digests=[digest_key("of-b")]))
    await wait_for_table(client, door)
    with pytest.raises(openai.AuthenticationError):
        await sdk("of-b").chat.completions.create(**CHAT)  # type: ignore[call-overload]
    for key in ("of-b", "stranger"):
        with pytest.raises(openai.NotFoundError):
            await sdk(key).chat.completions.create(**{**CHAT, "model": "none"})  # type: ignore[call-overload]


async def test_headers_that_identify_the_client_reach_no_engine(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", chat)
    door.publish(engine)
    await wait_for_table(client, door)
    telling = {
        "Authorization": "Bearer mine",
        "Proxy-Authorization": "Basic mine",
        "Cookie": "session=mine",
        "X-Api-Key": "mine",
        "Api-Key": "mine",
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Access-Token": "mine",
        "Forwarded": "for=10.0.0.1",
        "OpenAI-Organization": "mine",
    }
    forwarded = {"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-Id": "one"}
    async with client.post(f"{door.url}/v1/chat/completions", json=CHAT, headers=telling | forwarded) as response:
        assert response.status == 200
    (got,) = engine.headers
    assert {name for name in telling if name in got} == set()
    assert {name: got[name] for name in forwarded} == forwarded
    assert got["Content-Type"] == "application/json"


async def test_keys_appear_in_no_log_and_no_metric(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuses(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=401)

    caplog.set_level(logging.DEBUG)
    engine = await start("a", refuses)
    keyed_door.publish(engine, key_digests=[digest_key("sesame")], hold_timeout_seconds=0.1)
    await wait_for_table(client, keyed_door)
    for key in ("sesame", "treacle"):
        headers = {"Authorization": f"Bearer {key}"}
        async with client.post(f"{keyed_door.url}/v1/completions", json=CHAT, headers=headers) as response:
            assert response.status in (401, 503)
    sent = engine.headers[0]["Authorization"].removeprefix("Bearer ")
    assert len(sent) == 64
    texts = [caplog.text]
    for path in ("metrics", "stats", "v1/models"):
        async with client.get(f"{keyed_door.url}/{path}") as response:
            texts.append(await response.text())
    secrets = ("sesame", "treacle", digest_key("sesame"), digest_key("treacle"), sent, "Bearer first")
    assert [secret for secret in secrets for text in texts if secret in text] == []


async def test_requests_with_wrong_keys_take_no_held_place(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", chat)
    door.publish(engine, ready=False, key_digests=FLEET_KEYS, max_held=1)
    await wait_for_table(client, door)

    async def send_request(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        async with client.post(f"{door.url}/v1/completions", json=CHAT, headers=headers) as response:
            return response.status

    assert await asyncio.gather(*(send_request("stranger") for _ in range(8))) == [401] * 8
    waiting = asyncio.create_task(send_request("new"))
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 1)
    assert await send_request("stranger") == 401, "and does not hear that the place is taken"
    door.publish(engine, key_digests=FLEET_KEYS)
    assert await waiting == 200


names = st.sampled_from("mno")
words = st.sampled_from(["", "one", "two", "three"])
routes = st.builds(
    ModelRoute,
    fleet=st.sampled_from("ab"),
    key_digests=st.none() | st.lists(words.filter(bool).map(digest_key), max_size=2),
)
tables = st.builds(RoutingTable, models=st.dictionaries(names, routes))


@given(tables, tables, names, words)
def test_a_request_is_sent_only_to_the_fleet_that_admitted_it_and_accepts_its_key_now(
    then: RoutingTable, now: RoutingTable, model: str, key: str
) -> None:
    def accepts(table: RoutingTable) -> bool:
        found = table.models.get(model)
        return found is not None and (found.key_digests is None or digest_key(key) in found.key_digests)

    admission = status_of(lambda: admit_request(then, model, digest_key(key), 0.0))
    if not accepts(then):
        assert admission == (401 if model in then.models else 404)
        return
    assert isinstance(admission, ClientAdmission)
    sent = status_of(lambda: admission.route(now, 0.0))
    if model in now.models and now.models[model].fleet != then.models[model].fleet:
        assert sent == 503
    else:
        assert sent == (now.models[model] if accepts(now) else 401 if model in now.models else 404)
    assert key == "" or key not in repr(admission)


def status_of(do: Callable[[], object]) -> object:
    """What it returns, or the status of the error that it raises."""
    try:
        return do()
    except GatewayError as error:
        return error.status
