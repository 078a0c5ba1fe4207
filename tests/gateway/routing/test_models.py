"""Which models a client sees, and which one a request is for that names none."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import aiohttp
import httpx
import pytest
from starlette.routing import Route
from tests.gateway.fakes import Door, answer, route, stats, until
from yarl import URL

from paternoster_contract.access.keys import digest_key
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.http import paths
from paternoster_contract.http.routes import FORWARDED, ROUTES, AtGateway
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.admission.admission import only_model
from paternoster_gateway.app import create_app
from paternoster_gateway.errors import GatewayError

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"


def test_the_gateway_serves_the_routes_of_the_contract(table: Path) -> None:
    app = create_app(str(table))
    served = {
        (method, each.path)
        for each in app.routes
        if isinstance(each, Route)
        for method in (each.methods or set()) - {"HEAD"}
    }
    records = {("GET", paths.DEBUG_REQUESTS), ("GET", paths.DEBUG_REQUESTS + "/{request_id:path}")}
    assert served == {(each.method, each.path) for each in ROUTES if each.gateway is not AtGateway.NONE} | records


async def test_an_engine_gets_the_request_at_the_clients_path(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish(engine)
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for path in FORWARDED:
        async with client.post(door.url + path, json={"model": "m"}) as response:
            assert response.status == 200
    assert engine.paths == list(FORWARDED)


async def test_a_model_is_shown_with_its_length_and_its_defaults(client: aiohttp.ClientSession, door: Door) -> None:
    defaults = {"temperature": 0.7, "top_k": 20}
    described = route(max_model_len=77, default_parameters=DefaultParameters.model_validate(defaults))
    door.publish_models(**{"org/m": described, "n": route(), "none": route(default_parameters=DefaultParameters())})
    await until(lambda: stats(client, door), lambda models: "n" in models)
    async with client.get(f"{door.url}/v1/models") as response:
        listed = {entry["id"]: entry for entry in (await response.json())["data"]}
    assert listed["org/m"]["max_model_len"] == 77
    assert listed["org/m"]["default_parameters"] == defaults
    assert listed["none"]["default_parameters"] == {}
    assert not {"max_model_len", "default_parameters"} & listed["n"].keys()
    async with client.get(f"{door.url}/v1/models/org/m") as response:
        assert await response.json() == listed["org/m"]
    async with client.get(f"{door.url}/v1/models/org") as response:
        assert (response.status, (await response.json())["error"]["param"]) == (404, "model")


async def test_a_model_answers_under_each_of_its_names(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    """And is counted under the first, so that its metrics are one series."""
    engine = await start("a", answer)
    fleet = route(engine, aliases=["mistral:latest", "org/m"], fleet="f")
    door.publish_models(m=fleet, closed=route(aliases=["secret:latest"], key_digests=[digest_key("k")]))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    async with client.get(f"{door.url}/v1/models") as response:
        listed = {entry["id"]: entry["root"] for entry in (await response.json())["data"]}
    assert listed == {"m": "m", "mistral:latest": "m", "org/m": "m"}, "names that no key opens are not listed"
    names = ("m", "mistral:latest", "org/m")
    for name in names:
        async with client.post(door.url + PATH, json={"model": name}) as response:
            assert (response.status, await response.json()) == (200, {"from": "a"})
        for path in (name, quote(name, safe="")):
            async with client.get(URL(f"{door.url}/v1/models/{path}", encoded=True)) as response:
                assert (response.status, (await response.json())["id"]) == (200, name)
    assert [json.loads(body)["model"] for body in engine.bodies] == [*names], "as the client wrote it"
    reported = await stats(client, door)
    assert reported.keys() == {"m", "closed"}
    assert (reported["m"]["requests_total"], reported["m"]["aliases"]) == (3, ["mistral:latest", "org/m"])
    async with client.get(f"{door.url}/metrics") as response:
        assert "mistral:latest" not in await response.text()
    async with client.post(door.url + PATH, json={"model": "secret:latest"}) as response:
        assert response.status == 401


async def test_a_new_name_is_held_until_a_replica_serves_it(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    """During a rollout that adds a name, older replicas would answer 404."""
    old, new = await start("old", answer), await start("new", answer)
    older = Replica(name="old", url=old.url, ready=True, unserved_names=("m:new",))
    door.publish_models(m=ModelRoute(replicas=[older], aliases=["m:new"]))
    await until(lambda: stats(client, door), lambda models: "m" in models)

    async def send_request(name: str | None) -> str:
        async with client.post(door.url + PATH, json={} if name is None else {"model": name}) as response:
            return str((await response.json())["from"])

    assert await send_request("m") == await send_request(None) == "old", "nothing holds what every replica takes"
    waiting = asyncio.create_task(send_request("m:new"))
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 1)
    newer = Replica(name="new", url=new.url, ready=True)
    door.publish_models(m=ModelRoute(replicas=[older, newer], aliases=["m:new"]))
    assert await waiting == "new"
    assert {await send_request("m:new") for _ in range(4)} == {"new"}
    assert {await send_request("m") for _ in range(4)} == {"old", "new"}


async def test_a_held_name_that_passes_to_another_fleet_is_not_sent_there(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    other = await start("b", answer)
    door.publish_models(m=route(aliases=["shared"], fleet="a"))
    await until(lambda: stats(client, door), lambda models: "m" in models)

    async def send_request() -> tuple[int, str]:
        async with client.post(door.url + PATH, json={"model": "shared"}) as response:
            return response.status, (await response.json())["error"]["message"]

    waiting = asyncio.create_task(send_request())
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 1)
    door.publish_models(m=route(fleet="a"), n=route(other, aliases=["shared"], fleet="b"))
    status, message = await waiting
    assert (status, other.bodies) == (503, [])
    assert "`shared` became the name of another fleet" in message


async def test_the_page_of_one_model_needs_its_key(client: aiohttp.ClientSession, door: Door) -> None:
    door.publish_models(m=route(key_digests=[digest_key("k")]))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for key, status in (("k", 200), ("other", 401)):
        async with client.get(f"{door.url}/v1/models/m", headers={"Authorization": f"Bearer {key}"}) as response:
            assert response.status == status


async def test_a_request_without_a_model_goes_to_the_only_one_that_its_key_opens(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish_models(m=route(engine), theirs=route(key_digests=[digest_key("k")]))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for body in ({"messages": []}, {"model": None}, {"model": ""}):
        async with client.post(door.url + PATH, json=body) as response:
            assert (response.status, await response.json()) == (200, {"from": "a"})
    assert (await stats(client, door))["m"]["requests_total"] == 3
    door.publish_models(m=route(engine), n=route())
    await until(lambda: stats(client, door), lambda models: "n" in models)
    async with client.post(door.url + PATH, json={"messages": []}) as response:
        error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "model")
        assert error["message"] == "`model` must be given: one of `m`, `n`."


@pytest.mark.parametrize(
    ("models", "key", "status", "words"),
    [
        ({}, "", 400, "none is served now"),
        ({"m": ModelRoute(key_digests=[digest_key("k")])}, "x", 401, "key"),
        ({f"m{i:03}": ModelRoute() for i in range(100)}, "", 400, "`m019` and 80 more"),
        ({"m" * 500: ModelRoute(), "n": ModelRoute()}, "", 400, f"`{'m' * 200}`"),
    ],
)
def test_a_request_that_must_name_a_model_gets_the_names(
    models: dict[str, ModelRoute], key: str, status: int, words: str
) -> None:
    with pytest.raises(GatewayError) as raised:
        only_model(RoutingTable(models=models), digest_key(key), 0.0)
    assert raised.value.status == status
    assert words in str(raised.value)


@pytest.mark.parametrize(("origins", "allowed"), [((), None), (("https://a.example",), "https://a.example")])
async def test_pages_of_allowed_origins_may_call(table: Path, origins: tuple[str, ...], allowed: str | None) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    transport = httpx.ASGITransport(create_app(str(table), origins=origins))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        before = await client.options(PATH, headers=preflight)
        assert before.headers.get("access-control-allow-origin") == allowed
        assert before.status_code == (405 if allowed is None else 200)
        for page, origin in (("https://a.example", allowed), ("https://b.example", None)):
            answer = await client.get("/v1/models", headers={"Origin": page})
            assert answer.headers.get("access-control-allow-origin") == origin
