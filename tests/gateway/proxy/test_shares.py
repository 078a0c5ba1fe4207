"""Places and memory of the gateway are shared out by fleet and by key: what one takes leaves the others their part."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, route, serving_table, stats, until

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import RoutingTable
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_gateway.admission.admission import admit_request
from paternoster_gateway.admission.known_parties import MOST_REMEMBERED, KnownParties

Start = Callable[..., Awaitable[FakeEngine]]
KIB = 1024
LIMITS = HttpLimits(max_connections=128, max_body_bytes=64 * KIB, max_held_body_bytes=1024 * KIB)
"""120 places for requests, and 16 bodies of the largest size."""
FOR_EVER: dict[str, Any] = {"max_held": 2**31 - 1, "hold_timeout_seconds": 86_400}
WHOSE = {digest_key("noisy"): Identity(tenant="noisy"), digest_key("quiet"): Identity(tenant="quiet")}
KEYS: dict[str, Any] = {"key_digests": list(WHOSE), "identities": WHOSE}


@pytest.fixture
async def small(table: Path) -> AsyncIterator[Door]:
    async with serving_table(table, LIMITS) as url:
        yield Door(url, table)


@pytest.fixture
async def clients() -> AsyncIterator[tuple[aiohttp.ClientSession, aiohttp.ClientSession]]:
    """A noisy one and a quiet one, at one address as behind a proxy."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as noisy,
        aiohttp.ClientSession() as quiet,
    ):
        yield noisy, quiet


class Sender:
    """Requests of one client; those that are sent stay open until they are answered."""

    def __init__(self, door: Door, client: aiohttp.ClientSession, key: str = "") -> None:
        self.url = f"{door.url}/v1/completions"
        self.client = client
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.tasks: list[asyncio.Task[int]] = []

    async def status(self, model: str, size: int = 0) -> int:
        body = {"model": model, "prompt": "x" * size}
        async with self.client.post(self.url, json=body, headers=self.headers) as response:
            await response.read()
            return response.status

    def send(self, count: int, model: str, size: int = 0) -> None:
        self.tasks += [asyncio.create_task(self.status(model, size)) for _ in range(count)]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def served(sender: Sender, model: str, size: int) -> list[int]:
    """The statuses of requests one after another, and of some at once."""
    statuses = [await sender.status(model, size) for _ in range(5)]
    return statuses + await asyncio.gather(*(sender.status(model, size) for _ in range(4)))


@pytest.mark.parametrize("size", [0, 60 * KIB], ids=["places", "bytes"])
async def test_requests_held_for_a_fleet_scaled_to_zero_leave_room_for_another_fleet(
    small: Door, clients: tuple[aiohttp.ClientSession, ...], start: Start, size: int
) -> None:
    small.publish_models(asleep=route(**FOR_EVER), awake=route(await start("a", answer)))
    noisy, quiet = (Sender(small, client) for client in clients)
    await until(lambda: stats(clients[1], small), lambda models: "awake" in models)
    noisy.send(125, "asleep", size)
    most = 15 if size else 106
    await until(lambda: stats(clients[1], small), lambda models: models["asleep"]["held"] >= min(most, 14))
    await asyncio.sleep(0.5)
    held = (await stats(clients[1], small))["asleep"]["held"]
    assert 14 <= held <= most, "nearly all"
    assert await served(quiet, "awake", size) == [200] * 9
    await noisy.end()


async def test_many_fleets_scaled_to_zero_leave_room_for_another_fleet(
    small: Door, clients: tuple[aiohttp.ClientSession, ...], start: Start
) -> None:
    sleeping = {f"asleep-{n}": route(fleet=f"{n}", **FOR_EVER) for n in range(15)}
    small.publish_models(awake=route(await start("a", answer)), **sleeping)
    noisy, quiet = (Sender(small, client) for client in clients)
    await until(lambda: stats(clients[1], small), lambda models: "awake" in models)
    for model in sleeping:
        noisy.send(8, model)

    def all_are_held_or_refused(models: dict[str, dict[str, int]]) -> bool:
        held = sum(models[model]["held"] for model in sleeping)
        return held + sum(task.done() for task in noisy.tasks) == len(noisy.tasks)

    await until(lambda: stats(clients[1], small), all_are_held_or_refused)
    assert await served(quiet, "awake", 0) == [200] * 9
    await noisy.end()


async def test_a_client_whose_requests_run_leaves_room_for_another_of_the_same_fleet(
    small: Door, clients: tuple[aiohttp.ClientSession, ...], start: Start
) -> None:
    released = asyncio.Event()

    async def wait_for_noisy(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        if b"xxx" in engine.bodies[-1]:
            await released.wait()
        return await answer(engine, request)

    small.publish(await start("a", wait_for_noisy), fleet="uid", **KEYS)
    noisy, quiet = (Sender(small, client, key) for client, key in zip(clients, ("noisy", "quiet"), strict=True))
    await until(lambda: stats(clients[1], small), lambda models: "m" in models)
    noisy.send(125, "m", 3)
    await asyncio.sleep(1)
    assert await served(quiet, "m", 1) == [200] * 9
    refused = [task.result() for task in noisy.tasks if task.done()]
    assert set(refused) == {503}
    assert 19 <= len(refused) <= 40
    released.set()
    assert set(await asyncio.gather(*noisy.tasks)) == {200, 503}


async def test_bodies_with_unknown_keys_leave_room_for_a_key_that_was_admitted_before(
    small: Door, clients: tuple[aiohttp.ClientSession, ...], start: Start
) -> None:
    """Also from the same address: what a stranger sends is never whole, and is sent anew all the time."""
    small.publish(await start("a", answer), fleet="uid", **KEYS)
    quiet = Sender(small, clients[1], "quiet")
    await until(lambda: stats(clients[1], small), lambda models: "m" in models)
    assert await quiet.status("m") == 200
    ended = False

    async def never_whole() -> None:
        while not ended:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(small.url.rpartition(":")[2]))
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n" + b" " * 65535)
            await reader.read()
            writer.close()

    strangers = [asyncio.create_task(never_whole()) for _ in range(24)]
    await asyncio.sleep(0.5)
    assert await served(quiet, "m", 60 * KIB) == [200] * 9
    ended = True
    for task in strangers:
        task.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)


async def test_requests_refused_beyond_a_share_are_counted_by_resource(
    small: Door, clients: tuple[aiohttp.ClientSession, ...]
) -> None:
    async def refused() -> float:
        async with clients[1].get(f"{small.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        start = 'paternoster_gateway_share_refusals_total{resource="requests"} '
        return float(next(line for line in lines if line.startswith(start)).removeprefix(start))

    small.publish(**FOR_EVER)
    noisy = Sender(small, clients[0])
    await until(lambda: stats(clients[1], small), lambda models: "m" in models)
    before = await refused()
    noisy.send(125, "m")
    assert await until(refused, lambda count: count > before) > before
    await noisy.end()


def test_a_key_has_a_party_while_its_fleet_accepts_it() -> None:
    table = RoutingTable(models={"m": route(fleet="uid", **KEYS), "open": route()})
    parties = KnownParties()
    assert parties.party_of(digest_key("quiet"), table) is None
    parties.add_party(admit_request(table, "m", digest_key("quiet"), 0.0))
    parties.add_party(admit_request(table, "open", digest_key("noisy"), 0.0, peer="10.0.0.1"))
    assert parties.party_of(digest_key("quiet"), table) == ("uid", "quiet")
    assert parties.party_of(digest_key("noisy"), table) is None, "its fleet needs no key"
    assert parties.party_of(digest_key(""), table) is None
    for later in ({"m": route(fleet="other", **KEYS)}, {"m": route(fleet="uid", key_digests=[])}, {}):
        assert parties.party_of(digest_key("quiet"), RoutingTable(models=later)) is None


def test_remembered_keys_are_bounded_and_the_oldest_is_removed() -> None:
    keys = [f"key {n}" for n in range(MOST_REMEMBERED + 1)]
    table = RoutingTable(models={"m": route(key_digests=list(map(digest_key, keys)))})
    parties = KnownParties()
    digests = table.models["m"].key_digests
    assert digests is not None
    for key in keys:
        digests[0] = digest_key(key)
        parties.add_party(admit_request(table, "m", digest_key(key), 0.0))
    table.models["m"].key_digests = [digest_key(keys[0]), digest_key(keys[-1])]
    assert parties.party_of(digest_key(keys[0]), table) is None
    assert parties.party_of(digest_key(keys[-1]), table) == ("m", f"key-{digest_key(keys[-1])[:8]}")
