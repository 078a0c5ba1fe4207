"""A client has the identity of its key: engines get it from the gateway alone, until the key expires."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from tests.gateway.fakes import Door, answer, route, route_request, stats, until

from paternoster_contract.access.identity import HEADER, LANE_HEADER, Identity, Lane, of_plain_key
from paternoster_contract.access.keys import BATCH_TO_GATEWAY, GATEWAY_TO_ENGINE, KEY_DIGEST, digest_key, vouch_headers
from paternoster_contract.routing import RoutingTable
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.admission.admission import ClientAdmission, admit_request, models_open_to
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.dispatcher import Dispatcher

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
ACME = Identity(tenant="acme", weight=3, expires=datetime(2030, 1, 1, tzinfo=UTC))
KEYS = {"key_digests": [digest_key("named"), digest_key("plain")], "identities": {digest_key("named"): ACME}}
END = datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_engines_get_the_identity_of_the_key_and_none_that_a_client_sends(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish(engine, **KEYS)
    await until(lambda: stats(client, door), lambda models: "m" in models)
    forged = {HEADER: Identity(tenant="victim").encode(), LANE_HEADER: Lane.BATCH.encode()}
    for key in ("named", "plain"):
        url, body = f"{door.url}/v1/completions", {"model": "m", "user": "victim"}
        async with client.post(url, json=body, headers={**bearer(key), **forged}) as response:
            assert response.status == 200
    assert not any(LANE_HEADER in headers for headers in engine.headers)
    identities = [headers.getall(HEADER) for headers in engine.headers]
    assert all(len(each) == 1 for each in identities)
    assert Identity.decode(identities[0][0]) == ACME.model_copy(update={"expires": None})
    assert Identity.decode(identities[1][0]) == of_plain_key(digest_key("plain"))
    door.publish(engine, max_held=5)
    await asyncio.sleep(1.2)
    async with client.post(f"{door.url}/v1/completions", json={"model": "m"}, headers=forged) as response:
        assert response.status == 200
    assert HEADER not in engine.headers[-1], "an open fleet knows nobody"


async def test_a_key_lists_the_models_that_it_opens(client: aiohttp.ClientSession, door: Door) -> None:
    door.publish_models(m=route(**KEYS), free=route())

    async def listed(key: str) -> list[str]:
        async with client.get(f"{door.url}/v1/models", headers=bearer(key)) as response:
            return [entry["id"] for entry in (await response.json())["data"]]

    await until(lambda: listed("named"), lambda names: names == ["m", "free"])
    assert await listed("plain") == ["m", "free"]
    assert await listed("wrong") == ["free"]


def test_a_key_opens_no_model_once_it_has_expired() -> None:
    table = RoutingTable(models={"m": route(**KEYS)})
    admission = admit_request(table, "m", digest_key("named"), END - 1)
    assert admission.identity == ACME
    with pytest.raises(GatewayError, match="expired") as refused:
        admission.route(table, END)
    assert refused.value.status == 401
    with pytest.raises(GatewayError, match="expired"):
        admit_request(table, "m", digest_key("named"), END)
    assert models_open_to(table, digest_key("named"), END) == []
    assert models_open_to(table, digest_key("plain"), END) == ["m"]


@pytest.mark.parametrize("keys", [True, False], ids=["tenants", "addresses"])
async def test_one_sender_gives_up_held_places_to_another(keys: bool) -> None:
    table = RoutingTable(models={"m": route(max_held=4, hold_timeout_seconds=60)})
    dispatcher = Dispatcher()
    dispatcher.change_table(table)

    def hold(sender: str) -> asyncio.Task[Any]:
        admission = (
            ClientAdmission("m", identity=Identity(tenant=sender)) if keys else ClientAdmission("m", peer=sender)
        )
        return asyncio.create_task(route_request(dispatcher, dispatcher.open_request(admission), admission))

    async def refused(*tasks: asyncio.Task[Any]) -> list[int]:
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        return [index for index, task in enumerate(tasks) if task.done()]

    flood = [hold("flood") for _ in range(6)]
    assert await refused(*flood) == [4, 5], "who is alone may have all places"
    quiet = [hold("quiet") for _ in range(3)]
    assert await refused(*quiet) == [2], "two each"
    assert await refused(*flood) == [2, 3, 4, 5], "the latest go"
    assert dispatcher.count_held("m") == 4
    for task in (*flood, *quiet):
        task.cancel()
    await asyncio.gather(*flood, *quiet, return_exceptions=True)


async def test_a_line_of_a_batch_is_from_the_client_that_made_the_batch(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start
) -> None:
    """The batch service proves that it has the gateway's root, and has no key of the client."""
    engine = await start("a", answer)
    keyed_door.publish(engine, fleet="uid", **KEYS)

    async def call(headers: dict[str, str]) -> int:
        async with client.post(f"{keyed_door.url}/v1/completions", json={"model": "m"}, headers=headers) as response:
            return response.status

    named = digest_key("named")
    vouched = vouch_headers("first", BATCH_TO_GATEWAY, named) | {LANE_HEADER: "online"}
    await until(lambda: call(vouched), lambda status: status == 200)
    assert Identity.decode(engine.headers[-1][HEADER]).tenant == "acme"
    assert engine.headers[-1].getall(LANE_HEADER) == ["batch"], "its own word for it is not passed on"
    assert KEY_DIGEST not in engine.headers[-1]
    numbers = (await stats(client, keyed_door))["m"]
    assert (numbers["requests_total"], numbers["idle_seconds"]) == (0, None)
    assert engine.headers[-1]["Authorization"] != vouched["Authorization"]
    async with client.get(f"{keyed_door.url}/v1/models/m", headers=vouched) as response:
        assert response.status == 200
    refused = [
        vouch_headers("other", BATCH_TO_GATEWAY, named),
        vouch_headers("first", GATEWAY_TO_ENGINE, named),
        vouch_headers("first", BATCH_TO_GATEWAY, digest_key("wrong")),
        vouched | {KEY_DIGEST: digest_key("plain")},
        vouched | {KEY_DIGEST: named.upper()},
        {KEY_DIGEST: named},
        {"Authorization": f"Bearer {named}"},
        {"Authorization": vouched["Authorization"]},
    ]
    for headers in refused:
        assert await call(headers) == 401, headers
