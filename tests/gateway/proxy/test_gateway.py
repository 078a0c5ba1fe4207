"""The gateway before real sockets: what is forwarded, retried and answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, route, route_request

from paternoster_contract import __version__
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.decisions import Result, Send

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "up"}]}


async def full(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "full"}}, status=503, headers={"Retry-After": "7"})


async def reset(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streaming(*pieces: bytes, pause: asyncio.Event | None = None, breaks: bool = False) -> Behave:
    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, piece in enumerate(pieces):
            if number == 1 and pause is not None:
                await pause.wait()
            await response.write(piece)
        if breaks:
            assert request.transport is not None
            await asyncio.sleep(0.05)
            request.transport.abort()
        return response

    return behave


async def seen(client: aiohttp.ClientSession, door: Door, model: str = "m") -> None:
    """Wait until the gateway has read the table."""
    while True:
        async with client.get(f"{door.url}/v1/models") as response:
            if model in [entry["id"] for entry in (await response.json())["data"]]:
                return
        await asyncio.sleep(0.05)


async def test_request_and_answer_pass_unchanged(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    engine = await start("a", answer)
    door.publish(engine)
    await seen(client, door)
    raw = json.dumps(BODY, indent=3).encode()
    async with client.post(door.url + PATH, data=raw, headers={"X-Request-Id": "mine"}) as response:
        assert response.status == 200
        assert await response.json() == {"from": "a"}
        assert response.headers["X-Paternoster-Engine"] == "a"
        assert response.headers["X-Request-Id"] == "mine"
    assert engine.bodies == [raw]


async def test_pieces_of_a_stream_are_forwarded_at_once(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    pause = asyncio.Event()
    door.publish(await start("a", streaming(b"data: 1\n\n", b"data: 2\n\ndata: [DONE]\n\n", pause=pause)))
    await seen(client, door)
    async with client.post(door.url + PATH, json=BODY) as response:
        first = await response.content.readany()
        assert first == b"data: 1\n\n", "the engine has not even made the second piece"
        pause.set()
        assert await response.content.read() == b"data: 2\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("fault", [full, reset])
async def test_another_replica_is_tried_before_the_first_byte(
    client: aiohttp.ClientSession, door: Door, start: Start, fault: Behave
) -> None:
    bad, good = await start("bad", fault), await start("good", answer)
    door.publish(bad, good)
    await seen(client, door)
    for _ in range(6):
        async with client.post(door.url + PATH, json=BODY) as response:
            assert await response.json() == {"from": "good"}
    assert bad.bodies, "it was asked at least once"


async def test_a_replica_that_refuses_connections_is_replaced_by_another(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    good = await start("good", answer)
    dead = FakeEngine("dead", answer, url="http://127.0.0.1:9")
    door.publish(dead, good)
    await seen(client, door)
    for _ in range(4):
        async with client.post(door.url + PATH, json=BODY) as response:
            assert await response.json() == {"from": "good"}


async def test_a_broken_stream_ends_with_an_error_and_is_not_repeated(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    breaking, other = await start("a", streaming(b"data: 1\n\n", breaks=True)), await start("b", answer)
    door.publish(breaking)
    await seen(client, door)
    async with client.post(door.url + PATH, json=BODY) as response:
        text = (await response.content.read()).decode()
    assert text.startswith("data: 1\n\n")
    assert "broke off its answer" in text
    assert text.endswith("data: [DONE]\n\n")
    assert other.bodies == []


@pytest.mark.parametrize(
    ("path", "status"), [(PATH, 200), (PATH, 400), ("/v1/embeddings", 200), ("/v1/embeddings", 400)]
)
async def test_a_whole_answer_that_is_broken_off_ends_its_connection_without_a_traceback(
    client: aiohttp.ClientSession, door: Door, start: Start, caplog: pytest.LogCaptureFixture, path: str, status: int
) -> None:
    async def break_off(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        response.content_length = 100
        await response.prepare(request)
        await response.write(b'{"a": ')
        assert request.transport is not None
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    door.publish(await start("a", break_off))
    await seen(client, door)
    async with client.post(door.url + path, json=BODY | {"input": "up"}) as response:
        assert response.status == status
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    assert len([each for each in caplog.records if "broke off an answer" in each.getMessage()]) == 1


async def test_a_client_that_leaves_ends_the_upstream_request(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", streaming(b"data: 1\n\n", b"data: 2\n\n", pause=asyncio.Event()))
    door.publish(engine)
    await seen(client, door)
    response = await client.post(door.url + PATH, json=BODY)
    assert await response.content.readany() == b"data: 1\n\n"
    response.close()
    async with asyncio.timeout(10):
        while not engine.gone:
            await asyncio.sleep(0.02)
        while (await stats(client, door))["in_flight"]:
            await asyncio.sleep(0.02)


async def stats(client: aiohttp.ClientSession, door: Door) -> dict[str, int]:
    async with client.get(f"{door.url}/stats") as response:
        document: dict[str, int] = (await response.json())["models"]["m"]
        return document


async def test_requests_are_held_until_a_replica_is_ready(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish(engine, ready=False)
    await seen(client, door)
    waiting = [asyncio.create_task(_post(client, door)) for _ in range(3)]
    while (await stats(client, door))["held"] < 3:
        await asyncio.sleep(0.02)
    assert (await stats(client, door))["in_flight"] == 0
    door.publish(engine)
    assert await asyncio.gather(*waiting) == [(200, {"from": "a"})] * 3
    assert (await stats(client, door))["held"] == 0


async def _post(client: aiohttp.ClientSession, door: Door, body: object = BODY) -> tuple[int, object]:
    async with client.post(door.url + PATH, json=body) as response:
        return response.status, await response.json()


async def test_holding_is_bounded_in_number_and_time(client: aiohttp.ClientSession, door: Door) -> None:
    door.publish(max_held=1, hold_timeout_seconds=1.5)
    await seen(client, door)
    first = asyncio.create_task(_post(client, door))
    while not (await stats(client, door))["held"]:
        await asyncio.sleep(0.02)
    async with client.post(door.url + PATH, json=BODY) as response:
        assert response.status == 503
        assert "Retry-After" in response.headers
        assert "already wait" in (await response.json())["error"]["message"]
    status, document = await first
    assert status == 503
    assert "became ready within 1.5 s" in str(document)


async def test_a_fleet_that_holds_no_requests_answers_503_with_retry_after(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(hold=False, retry_after_seconds=2.4, hold_timeout_seconds=60)
    await seen(client, door)
    for refused in (1, 2):
        async with client.post(door.url + PATH, json=BODY) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "3")
            assert "one is being started" in (await response.json())["error"]["message"]
        numbers = await stats(client, door)
        assert (numbers["held"], numbers["refused"], numbers["in_flight"]) == (0, refused, 0)
    door.publish(await start("a", answer), hold=False)
    while await _post(client, door) != (200, {"from": "a"}):
        await asyncio.sleep(0.05)
    assert (await stats(client, door))["refused"] == 0, "they are served when they come again"


async def test_rejected_requests_are_demand_until_they_may_come_again() -> None:
    now = [100.0]
    table = RoutingTable(models={"m": ModelRoute(hold=False, retry_after_seconds=10)})
    dispatcher, admission = Dispatcher(clock=lambda: now[0]), ClientAdmission("m")
    dispatcher.change_table(table)
    counts = []
    for now[0], comes in ((100.0, True), (105.0, True), (109.9, False), (110.0, False), (115.0, False)):
        if comes:
            with pytest.raises(GatewayError):
                await route_request(dispatcher, dispatcher.open_request(admission), admission)
        counts.append(dispatcher.count_rejected("m"))
    assert counts == [1, 2, 2, 1, 0]
    assert dispatcher.count_rejected("another") == 0


async def test_a_request_waits_for_ejected_replicas_of_a_fleet_that_holds_none() -> None:
    now = [100.0]
    replica = Replica(name="a", url="http://x", ready=True)
    table = RoutingTable(models={"m": ModelRoute(replicas=[replica], hold=False, hold_timeout_seconds=60)})
    dispatcher, admission = Dispatcher(clock=lambda: now[0]), ClientAdmission("m")
    dispatcher.change_table(table)
    dispatcher.report_result(dispatcher.open_request(admission), replica.url, Result.UNREACHABLE)
    waiting = asyncio.create_task(route_request(dispatcher, dispatcher.open_request(admission), admission))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    now[0] = 102.0
    dispatcher.change_table(table)
    assert await waiting == Send(replica)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ([], 400, "The body must be an object"),
        ({"model": 1}, 400, "The body must be an object"),
        ({"model": "m", "pad": "x" * 2**20}, 413, "longer than 1048576 bytes"),
    ],
)
async def test_errors_of_the_gateway_itself_have_openais_form(
    client: aiohttp.ClientSession, door: Door, body: object, status: int, words: str
) -> None:
    door.publish()
    await seen(client, door)
    got, document = await _post(client, door, body)
    assert got == status
    error = document["error"]  # type: ignore[index]
    assert words in error["message"]
    assert error["code"] == ("model_not_found" if status == 404 else None)


async def test_a_body_that_is_not_json_is_400(client: aiohttp.ClientSession, door: Door) -> None:
    async with client.post(door.url + PATH, data=b"{") as response:
        assert response.status == 400
        assert "not JSON" in (await response.json())["error"]["message"]


async def test_the_last_table_serves_while_its_source_is_gone(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", answer))
    await seen(client, door)
    door.table.write_text("{broken")
    await asyncio.sleep(1.2)
    door.table.unlink()
    await asyncio.sleep(1.2)
    assert await _post(client, door) == (200, {"from": "a"})


async def test_the_replica_with_the_fewest_requests_gets_the_next_one(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    pause = asyncio.Event()
    slow = await start("slow", streaming(b"data: 1\n\n", b"data: 2\n\n", pause=pause))
    door.publish(slow)
    await seen(client, door)
    busy = await client.post(door.url + PATH, json=BODY)
    quick = await start("quick", answer)
    door.publish(slow, quick)
    await asyncio.sleep(1)
    for _ in range(4):
        assert await _post(client, door) == (200, {"from": "quick"})
    pause.set()
    busy.close()


async def test_metrics_count_answers_by_model_route_and_status(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    door.publish(await start("a", answer))
    await seen(client, door)
    await _post(client, door)
    for path in ("/v1/completions", "/v1/completions/", "/v1/none"):
        await client.post(door.url + path, data=b"{")
    async with client.get(f"{door.url}/metrics") as response:
        text = await response.text()
    answers = [line for line in text.splitlines() if line.startswith("paternoster_gateway_requests_total{")]
    assert answers == [
        'paternoster_gateway_requests_total{code="200",model="m",route="/v1/chat/completions"} 1.0',
        'paternoster_gateway_requests_total{code="400",model="",route="/v1/completions"} 2.0',
    ]
    assert 'first_byte_seconds_count{model="m",route="/v1/chat/completions"} 1.0' in text
    assert 'paternoster_gateway_requests_held{model="m"} 0.0' in text
    # A counter that appears with its first event hides that event from rate().
    assert 'paternoster_gateway_broken_streams_total{model="m"} 0.0' in text
    assert f'paternoster_build_info{{component="gateway",version="{__version__}"}} 1.0' in text
    assert "process_resident_memory_bytes" in text


async def test_series_of_a_model_end_when_it_leaves_the_table(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    """All of them, also those of an answer that ends after the model has left."""
    pause = asyncio.Event()
    slow = await start("slow", streaming(b"data: 1\n\n", b"data: 2\n\n", pause=pause, breaks=True))
    quick = await start("quick", answer)
    door.publish_models(m=route(slow), stays=route(quick))
    await seen(client, door)
    for model in ("m", "stays"):
        (await client.post(door.url + PATH, json=BODY | {"model": model})).close()
    begun = await client.post(door.url + PATH, json=BODY)

    async def of(model: str) -> list[str]:
        async with client.get(f"{door.url}/metrics") as response:
            return [line for line in (await response.text()).splitlines() if f'model="{model}"' in line]

    names = {"requests_total", "time_to_first_byte_seconds_count", "requests_held", "requests_in_flight"}
    assert names <= {line.removeprefix("paternoster_gateway_").partition("{")[0] for line in await of("m")}
    door.publish_models(stays=route(quick))
    async with asyncio.timeout(10):
        while await of("m"):
            await asyncio.sleep(0.05)
    pause.set()
    await begun.content.read()
    assert await of("m") == []
    assert await of("stays")
    door.publish_models(m=route(slow), stays=route(quick))
    await seen(client, door)
    assert (await stats(client, door))["in_flight"] == 0, "what ended meanwhile is not counted any more"
