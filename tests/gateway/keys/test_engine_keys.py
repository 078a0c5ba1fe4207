"""The gateway's own keys to engines, and what becomes of a request where an engine refuses them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.fakes import Door, answer, replace, route, stats, until

from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key, read_bearer_key
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway import sent_keys
from paternoster_gateway.sent_keys import SentKeys

Start = Callable[[str, Behave], Awaitable[FakeEngine]]


def accepting(*roots: str, fleet: str = "a") -> Behave:
    """An engine of ``fleet`` that accepts the keys made from ``roots``."""

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        given = read_bearer_key(request.headers.get("Authorization", ""))
        if given not in [derive_key(root, GATEWAY_TO_ENGINE, fleet) for root in roots]:
            return web.json_response({"error": {}}, status=401, headers={"WWW-Authenticate": "Bearer"})
        return await answer(engine, request)

    return behave


async def send_request(client: aiohttp.ClientSession, door: Door, model: str = "m", size: int = 0) -> tuple[int, Any]:
    body = {"model": model, "messages": [], "pad": "x" * size}
    async with client.post(f"{door.url}/v1/chat/completions", json=body) as response:
        assert "WWW-Authenticate" not in response.headers
        return response.status, await response.json()


async def wait_for_table(client: aiohttp.ClientSession, door: Door) -> None:
    await until(lambda: stats(client, door), lambda models: "m" in models)


async def test_each_fleet_gets_a_key_of_its_own(client: aiohttp.ClientSession, keyed_door: Door, start: Start) -> None:
    one, two = await start("one", accepting("first")), await start("two", accepting("first", fleet="b"))
    keyed_door.publish_models(m=route(one, fleet="a"), other=route(two, fleet="b"))
    await wait_for_table(client, keyed_door)
    assert await send_request(client, keyed_door) == (200, {"from": "one"})
    assert await send_request(client, keyed_door, "other") == (200, {"from": "two"})
    assert one.headers[0]["Authorization"] != two.headers[0]["Authorization"]


@pytest.mark.parametrize("size", [0, 3 * 2**20], ids=["small", "3 MiB"])
async def test_an_engine_that_refuses_the_first_key_gets_the_next_one_from_then_on(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start, roots: Path, size: int
) -> None:
    replace(roots, "first", "second")
    engine = await start("one", accepting("second"))
    keyed_door.publish(engine, fleet="a")
    await wait_for_table(client, keyed_door)
    for _ in range(3):
        assert (await send_request(client, keyed_door, size=size))[0] == 200
    assert len(engine.bodies) == 4, "only the first request was sent twice"
    assert len(set(engine.bodies)) == 1


async def test_a_401_of_an_engine_becomes_a_503_for_the_client(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await start("pod-7", accepting("unknown"))
    keyed_door.publish(engine, fleet="a")
    await wait_for_table(client, keyed_door)
    status, document = await send_request(client, keyed_door)
    assert status == 503
    assert document["error"]["type"] == "ServiceUnavailableError"
    assert "Operators: the gateway's log names them; see that its --engine-key" in document["error"]["message"]
    assert f"pod-7 at {engine.url} refused the gateway's key" in caplog.text


async def test_a_replica_that_refuses_the_key_is_ejected_and_another_one_answers(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start
) -> None:
    """It has nothing in flight, so it would be asked first again and again."""
    strange, good = await start("strange", accepting("unknown")), await start("good", accepting("first"))
    keyed_door.publish(strange, good, fleet="a")
    await wait_for_table(client, keyed_door)
    answers = await asyncio.gather(*(send_request(client, keyed_door) for _ in range(20)))
    assert answers == [(200, {"from": "good"})] * 20
    for _ in range(5):
        assert await send_request(client, keyed_door) == (200, {"from": "good"})
    assert 1 <= len(strange.bodies) < 20


async def test_without_a_root_no_key_is_sent_and_a_new_root_is_read_without_a_restart(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start, roots: Path
) -> None:
    replace(roots)
    engine = await start("one", answer)
    keyed_door.publish(engine, fleet="a")
    await wait_for_table(client, keyed_door)
    assert (await send_request(client, keyed_door))[0] == 200
    assert "Authorization" not in engine.headers[0]
    replace(roots, "third")
    expected = f"Bearer {derive_key('third', GATEWAY_TO_ENGINE, 'a')}"

    async def sent() -> str | None:
        assert (await send_request(client, keyed_door))[0] == 200
        return engine.headers[-1].get("Authorization")

    await until(sent, lambda key: key == expected)


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_of_an_engine_is_not_followed(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start, status: int
) -> None:
    elsewhere = await start("elsewhere", answer)

    async def points(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"{elsewhere.url}/v1/completions"})

    keyed_door.publish(await start("one", points), fleet="a")
    await wait_for_table(client, keyed_door)
    url = f"{keyed_door.url}/v1/completions"
    async with client.post(url, json={"model": "m"}, allow_redirects=False) as response:
        assert response.status == 502, "nor does the client"
        assert "Location" not in response.headers
    assert elsewhere.bodies == []


async def test_headers_that_an_answer_names_in_connection_are_removed(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    async def names(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response(
            {}, headers={"Connection": "keep-alive, openai-hop", "openai-hop": "1", "openai-end": "1"}
        )

    door.publish(await start("one", names))
    await wait_for_table(client, door)
    async with client.post(f"{door.url}/v1/completions", json={"model": "m"}) as response:
        assert "openai-hop" not in response.headers
        assert response.headers["openai-end"] == "1"


ROOTS = ["r0", "r1", "r2"]
PEERS = ["http://p0", "http://p1", "http://p2"]
orders = st.lists(st.sampled_from(ROOTS), unique=True, max_size=3).map(tuple)


class Wire:
    """Peers that take the keys made from some roots, and which root each was last asked with."""

    def __init__(self) -> None:
        self.roots = SimpleNamespace(keys=())
        self.keys = SentKeys(self.roots, GATEWAY_TO_ENGINE)  # type: ignore[arg-type]
        self._by_key = {f"Bearer {derive_key(root, GATEWAY_TO_ENGINE, 'a')}": root for root in ROOTS}

    async def send_request(self, url: str, accepted: Collection[str]) -> tuple[int, list[str]]:
        """The status in the end, and the roots whose keys were sent."""
        sent: list[str] = []

        async def send(headers: Mapping[str, str]) -> Any:
            sent.extend(self._by_key[key] for key in headers.values())
            accepted_by = bool(sent) and sent[-1] in accepted
            return SimpleNamespace(status=200 if accepted_by else 401, release=lambda: None)

        return (await self.keys.send(send, url, "a")).status, sent


@given(st.lists(st.tuples(orders, st.sampled_from(PEERS), st.sets(st.sampled_from(ROOTS))), max_size=20))
async def test_sent_keys_reach_each_peer_that_accepts_one_of_the_roots(
    happened: list[tuple[tuple[str, ...], str, set[str]]],
) -> None:
    """A peer that accepts some root's key gets it, the last accepted one first, and no key twice."""
    wire, accepted_by = Wire(), dict[str, str]()
    for wire.roots.keys, url, accepted in happened:
        roots = wire.roots.keys
        status, sent = await wire.send_request(url, accepted)
        assert status == (200 if accepted.intersection(roots) else 401)
        assert len(sent) == len(set(sent))
        assert set(sent) <= set(roots)
        if roots:
            assert sent[0] == (accepted_by[url] if accepted_by.get(url) in roots else roots[0])
        if status == 200:
            accepted_by[url] = sent[-1]
            if sent[-1] == roots[0]:
                del accepted_by[url]  # nothing to remember: the first is sent first


async def test_remembered_peers_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_keys, "MOST_REMEMBERED", 2)
    wire = Wire()
    wire.roots.keys = ("r0", "r1")
    for url in PEERS:
        assert await wire.send_request(url, {"r1"}) == (200, ["r0", "r1"])
    assert [(await wire.send_request(url, {"r1"}))[1] for url in reversed(PEERS)] == [["r1"], ["r1"], ["r0", "r1"]]
