"""Adapters (LoRA) of a model: models of their own to clients, on the replicas that have loaded them."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from tests.gateway.fakes import Door, answer, route, stats, until

from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import AdapterRoute, ModelRoute, Replica, RoutingTable
from paternoster_contract.text_chains.canonical_text import canonical_text
from paternoster_contract.text_chains.chain import chain_scope, text_chain
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.admission.admission import admit_request
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.dispatcher import Dispatcher

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"
SQL = AdapterRoute(name="sql")


def replica(engine: FakeEngine, *unserved: str) -> Replica:
    return Replica(name=engine.name, url=engine.url, ready=True, unserved_names=unserved)


async def send_request(
    client: aiohttp.ClientSession, door: Door, model: str, key: str = ""
) -> tuple[int, Any, str | None]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with client.post(door.url + PATH, json={"model": model}, headers=headers) as response:
        return response.status, await response.json(), response.headers.get("Retry-After")


async def test_an_adapter_is_served_by_the_replicas_that_have_it(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    with_it, without = await start("with", answer), await start("without", answer)
    both = [replica(with_it), replica(without, "sql")]
    door.publish_models(m=ModelRoute(replicas=both, adapters=[SQL]))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for _ in range(6):
        assert (await send_request(client, door, "sql"))[:2] == (200, {"from": "with"})
    assert {(await send_request(client, door, "m"))[1]["from"] for _ in range(6)} == {"with", "without"}
    assert json.loads(with_it.bodies[0])["model"] == "sql", "as the client wrote it"
    assert (await stats(client, door))["m"]["requests_total"] == 12, "counted for the model"


async def test_an_adapter_that_no_replica_has_is_not_waited_for(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish_models(m=ModelRoute(replicas=[replica(engine, "sql")], adapters=[SQL], retry_after_seconds=7))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    status, body, retry_after = await send_request(client, door, "sql")
    assert (status, retry_after) == (503, "7")
    assert body["error"]["message"] == "No replica of `m` has loaded the adapter `sql`."
    assert (await stats(client, door))["m"]["refused"] == 0, "another replica would not have it either"
    assert (await send_request(client, door, "m"))[0] == 200
    door.publish_models(m=ModelRoute(replicas=[replica(engine)], adapters=[SQL]))
    await until(lambda: send_request(client, door, "sql"), lambda answered: answered[0] == 200)
    door.publish_models(m=ModelRoute(replicas=[replica(engine)]))
    gone = await until(lambda: send_request(client, door, "sql"), lambda answered: answered[0] == 404)
    assert gone[1]["error"]["code"] == "model_not_found"


async def test_models_lists_an_adapter_with_its_parent(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    keys = [digest_key("all"), digest_key("sql")]
    adapters = [SQL, AdapterRoute(name="secret", key_digests=[digest_key("sql")])]
    door.publish_models(m=route(await start("a", answer), aliases=["n"], key_digests=keys, adapters=adapters))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for key, names in (("all", ["m", "n", "sql"]), ("sql", ["m", "n", "sql", "secret"]), ("other", [])):
        headers = {"Authorization": f"Bearer {key}"}
        async with client.get(f"{door.url}/v1/models", headers=headers) as response:
            cards = (await response.json())["data"]
        assert [card["id"] for card in cards] == names
        adapted = [(card["root"], card["parent"]) for card in cards if card["parent"] is not None]
        assert adapted == [(name, "m") for name in names[2:]]
        async with client.get(f"{door.url}/v1/models/secret", headers=headers) as response:
            assert response.status == (200 if key == "sql" else 404)


@pytest.mark.parametrize(
    ("name", "key", "status"),
    [
        ("sql", "all", None), ("sql", "other", 401), ("secret", "sql", None), ("secret", "all", 404),
        ("secret", "other", 404), ("absent", "all", 404), ("nobody", "all", 404), ("m", "all", None),
        # Of the adapter, and not of the model any more.
        ("secret", "old", 401),
    ],
)  # fmt: skip
def test_a_key_that_may_not_use_an_adapter_gets_what_an_unknown_name_gets(
    name: str, key: str, status: int | None
) -> None:
    adapters = [
        SQL,
        AdapterRoute(name="secret", key_digests=[digest_key("sql"), digest_key("old")]),
        AdapterRoute(name="nobody", key_digests=[]),
    ]
    row = ModelRoute(key_digests=[digest_key("all"), digest_key("sql")], adapters=adapters)
    table = RoutingTable(models={"m": row})
    if status is None:
        admission = admit_request(table, name, digest_key(key), 0.0)
        assert (admission.model, admission.served_as) == ("m", name)
        return
    with pytest.raises(GatewayError) as refused:
        admit_request(table, name, digest_key(key), 0.0)
    assert refused.value.status == status
    if status == 404:
        assert str(refused.value) == f"The model `{name}` does not exist."


async def test_texts_of_adapters_have_scopes_of_their_own() -> None:
    """Engines hash the name that their answers have: for an alias the first of the model."""
    replicas = [Replica(name=url, url=url, ready=True) for url in ("http://a", "http://b")]
    row = ModelRoute(aliases=["n"], adapters=[SQL, AdapterRoute(name="other")], replicas=replicas)
    dispatcher, table = Dispatcher(), RoutingTable(models={"m": row})
    dispatcher.change_table(table)
    body = {"messages": [{"role": "user", "content": "The lift never stops. " * 30}]}
    text = canonical_text(PATH, body)
    assert text is not None
    for name, scope in (("m", "m"), ("n", "m"), ("sql", "sql"), ("other", "other")):
        admission = admit_request(table, name, "", 0.0)
        request = await dispatcher.open_call(Call(PATH, name, json.dumps(body).encode(), {}), admission)
        assert request.prompt is not None
        assert request.prompt.digests == [piece.digest for piece in text_chain(chain_scope(scope), text)]
