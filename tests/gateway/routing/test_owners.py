"""Fleets of several namespaces behind one gateway: names pass from one to another, and pods have the same names."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Decision, Result, Send

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
URL = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}
OF_A = {"Authorization": "Bearer of-a"}


async def send_request(client: aiohttp.ClientSession, door: Door, model: str = "m") -> tuple[int, str]:
    async with client.post(door.url + URL, json={**BODY, "model": model}, headers=OF_A) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("digests", [[digest_key("of-a")], [digest_key("of-b")], None], ids=["same", "others", "open"])
async def test_a_held_request_is_not_sent_to_the_fleet_that_its_name_passes_to(
    client: aiohttp.ClientSession, door: Door, start: Start, digests: list[str] | None
) -> None:
    """Whatever keys the other fleet takes: the client had the first in mind."""
    other = await start("b", answer)
    door.publish(fleet="a", key_digests=[digest_key("of-a")])
    await until(lambda: stats(client, door), lambda models: "m" in models)
    waiting = asyncio.create_task(send_request(client, door))
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 1)
    door.publish(other, fleet="b", key_digests=digests)
    status, text = await waiting
    assert (status, other.bodies) == (503, [])
    assert "another fleet" in text


async def test_a_retried_request_is_not_sent_to_the_fleet_that_its_name_passes_to(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    other = await start("b", answer)

    async def passes_the_name_on(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        door.publish(other, fleet="b")
        await until(lambda: stats(client, door), lambda models: models["m"]["fleet"] == "b")
        return web.json_response({}, status=503)

    door.publish(await start("a", passes_the_name_on), fleet="a")
    await until(lambda: stats(client, door), lambda models: "m" in models)
    status, text = await send_request(client, door)
    assert (status, other.bodies) == (503, [])
    assert "another fleet" in text


async def test_a_held_request_whose_key_is_withdrawn_is_refused(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish(fleet="a", key_digests=[digest_key("of-a")])
    await until(lambda: stats(client, door), lambda models: "m" in models)
    waiting = asyncio.create_task(send_request(client, door))
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 1)
    door.publish(engine, fleet="a", key_digests=[digest_key("another")])
    assert ((await waiting)[0], engine.bodies) == (401, [])


async def test_requests_rejected_for_one_fleet_are_no_demand_of_the_next(
    client: aiohttp.ClientSession, door: Door
) -> None:
    door.publish(fleet="a", hold=False, retry_after_seconds=60)
    await until(lambda: stats(client, door), lambda models: "m" in models)
    assert (await send_request(client, door))[0] == 503
    assert (await stats(client, door))["m"]["refused"] == 1
    door.publish(fleet="b", hold=False, retry_after_seconds=60)
    models = await until(lambda: stats(client, door), lambda models: models["m"]["fleet"] == "b")
    assert models["m"]["refused"] == 0


def test_an_ejected_replica_leaves_its_namesake_ready() -> None:
    balancer, one, two = namesakes()
    failed = balancer.open_request("m", "", 100.0)
    balancer.on_result(failed, one.url, Result.UNREACHABLE, 100.0)
    assert sent(balancer, "other") == Send(two)
    assert not isinstance(sent(balancer, "m"), Send)


def test_requests_in_flight_at_a_replica_are_no_load_of_its_namesake() -> None:
    balancer, one, two = namesakes()
    assert sent(balancer, "m") == Send(one)
    assert (balancer.in_flight[one.url], balancer.in_flight[two.url]) == (1, 0)


def sent(balancer: Balancer, model: str) -> Decision:
    return balancer.route(balancer.open_request(model, "", 100.0), balancer.table.models[model], 100.0)


def namesakes() -> tuple[Balancer, Replica, Replica]:
    """Two pods of one name in two namespaces, each the only one of its fleet."""
    one, two = (Replica(name="pod-0", url=f"http://{host}:8000", ready=True) for host in ("a", "b"))
    table = RoutingTable(models={"m": ModelRoute(replicas=[one]), "other": ModelRoute(replicas=[two])})
    balancer = Balancer()
    balancer.on_table(table)
    return balancer, one, two
