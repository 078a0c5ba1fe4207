"""Which models a client is told of, and which one a request is for that names none."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import httpx
import pytest
from fakes import Behave, Door, FakeEngine, answer, route, stats, until
from fastapi.routing import APIRoute

from paternoster_contract.access.keys import digest
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.http.routes import FORWARDED, ROUTES, AtGateway
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.admission import only_model
from paternoster_gateway.app import create_app
from paternoster_gateway.errors import GatewayError

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"


def test_its_routes_are_those_of_the_table(table: Path) -> None:
    app = create_app(str(table))
    served = {(method, each.path) for each in app.routes if isinstance(each, APIRoute) for method in each.methods}
    assert served == {(each.method, each.path) for each in ROUTES if each.gateway is not AtGateway.NONE}


async def test_the_engine_is_asked_at_the_path_of_the_client(
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
    known = route(max_model_len=77, default_parameters=DefaultParameters.model_validate(defaults))
    door.publish_models(**{"org/m": known, "n": route(), "none": route(default_parameters=DefaultParameters())})
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


async def test_one_model_needs_its_key(client: aiohttp.ClientSession, door: Door) -> None:
    door.publish_models(m=route(key_digests=[digest("k")]))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for key, status in (("k", 200), ("other", 401)):
        async with client.get(f"{door.url}/v1/models/m", headers={"Authorization": f"Bearer {key}"}) as response:
            assert response.status == status


async def test_a_request_without_a_model_is_for_the_only_one(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish_models(m=route(engine), theirs=route(key_digests=[digest("k")]))
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
        ({"m": ModelRoute(key_digests=[digest("k")])}, "x", 401, "key"),
        ({f"m{i:03}": ModelRoute() for i in range(100)}, "", 400, "`m019` and 80 more"),
        ({"m" * 500: ModelRoute(), "n": ModelRoute()}, "", 400, f"`{'m' * 200}`"),
    ],
)
def test_who_must_name_a_model_is_told_which(models: dict[str, ModelRoute], key: str, status: int, words: str) -> None:
    with pytest.raises(GatewayError) as raised:
        only_model(RoutingTable(models=models), key)
    assert raised.value.status == status
    assert words in str(raised.value)


@pytest.mark.parametrize(("origins", "allowed"), [((), None), (("https://a.example",), "https://a.example")])
async def test_pages_of_allowed_origins_may_call(table: Path, origins: tuple[str, ...], allowed: str | None) -> None:
    asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    transport = httpx.ASGITransport(create_app(str(table), origins=origins))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        before = await client.options(PATH, headers=asks)
        assert before.headers.get("access-control-allow-origin") == allowed
        assert before.status_code == (405 if allowed is None else 200)
        for page, told in (("https://a.example", allowed), ("https://b.example", None)):
            answer = await client.get("/v1/models", headers={"Origin": page})
            assert answer.headers.get("access-control-allow-origin") == told
