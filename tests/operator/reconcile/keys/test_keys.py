"""Keys of each hop, from the installation's roots and the users' Secrets."""

import asyncio
import base64
import re
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.operator.reconcile.world import KEY, FakeCluster, World

from paternoster_contract.access import keys
from paternoster_operator import runtime
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.desired.children import RootKeys
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.secret import build_secret
from paternoster_operator.keys.fleet_keys import MAX_KEYS, FleetKeys, UnusableKeys
from paternoster_operator.keys.key_secrets import REREAD_SECONDS, KeySecrets
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import ADMIN_KEY, GATEWAY_KEY, Settings

Resource = Callable[..., LLMDeployment]
OWN = {"security": {"apiKeySecretRef": {"name": "clients", "key": "k"}, "adminKeySecretRef": {"name": "admin"}}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_roots_are_made_once_and_differ() -> None:
    cluster = FakeCluster()
    settings = Settings(gateway_url="http://gateway")
    first = await FleetKeys(KeySecrets(cluster), settings).read_roots()
    second = await FleetKeys(KeySecrets(cluster), settings).read_roots()
    assert first == second
    assert cluster.secrets.keys() == {ADMIN_KEY, GATEWAY_KEY}
    (admin,), (gateway,) = first.admin, first.gateway
    assert admin != gateway
    assert min(len(admin), len(gateway)) == 64


async def test_without_a_gateway_there_is_no_key_for_one() -> None:
    cluster = FakeCluster()
    fleet_keys = FleetKeys(KeySecrets(cluster), Settings())
    assert (await fleet_keys.read_roots()).gateway == ()
    assert await fleet_keys.routes_digests() is None
    assert cluster.secrets.keys() == {ADMIN_KEY}


async def test_a_secret_is_read_again_and_stands_while_the_cluster_is_silent() -> None:
    cluster, clock = FakeCluster(), Clock()
    held = KeySecrets(cluster, clock)
    secret = Key("team-a", "clients")
    assert await held.read_keys(secret, "k") is None
    cluster.secrets[secret] = {"k": "old"}
    assert await held.read_keys(secret, "k") is None, "not asked for at every look"
    clock.now += REREAD_SECONDS
    assert await held.read_keys(secret, "k") == ("old",)
    cluster.secrets[secret] = {"k": "new\nold"}
    cluster.unreadable = ClusterError("away")
    clock.now += REREAD_SECONDS
    assert await held.read_keys(secret, "k") == ("old",)
    with pytest.raises(ClusterError, match="away"):
        await held.read_keys(Key("team-a", "never-read"), "k")
    cluster.unreadable = None
    clock.now += REREAD_SECONDS
    assert await held.read_keys(secret, "k") == ("new", "old")


async def test_a_fleet_without_secrets_of_its_own_is_open_and_has_derived_admin_keys(resource: Resource) -> None:
    fleet_keys = FleetKeys(KeySecrets(FakeCluster()), Settings())
    assert (await fleet_keys.client_keys(resource())).digests is None
    roots = RootKeys(["new", "old"])
    assert await fleet_keys.admin_keys(resource(), roots) == [
        keys.derive_key(root, keys.OPERATOR_TO_ENGINE, "uid-1") for root in ("new", "old")
    ]


async def test_the_users_secrets_are_named_when_they_are_missing_and_used_when_not(resource: Resource) -> None:
    cluster, clock = FakeCluster(), Clock()
    fleet_keys, fleet = FleetKeys(KeySecrets(cluster, clock), Settings()), resource(**OWN)
    clients = await fleet_keys.client_keys(fleet)
    assert clients.digests == []
    assert re.search(r"apiKeySecretRef names Secret clients, key k.*namespace lifts", str(clients.fault))
    with pytest.raises(UnusableKeys, match=r"adminKeySecretRef names Secret admin, key key"):
        await fleet_keys.admin_keys(fleet, RootKeys(["root"]))
    cluster.secrets |= {Key("lifts", "clients"): {"k": "a\nb\n"}, Key("lifts", "admin"): {"key": "c"}}
    clock.now += REREAD_SECONDS
    assert (await fleet_keys.client_keys(fleet)).digests == [keys.digest_key("a"), keys.digest_key("b")]
    assert await fleet_keys.admin_keys(fleet, RootKeys(["root"])) == ("c",)
    cluster.secrets[Key("lifts", "clients")] = {"k": "\n".join(map(str, range(MAX_KEYS + 1)))}
    clock.now += REREAD_SECONDS
    assert "has more keys there than the 256 that a fleet may have" in str((await fleet_keys.client_keys(fleet)).fault)


def test_a_fleets_secret_has_a_key_for_each_root_and_no_root(resource: Resource) -> None:
    secret = build_secret(ChildNames.from_resource(resource()), ["g1", "g2"], ["a1"])
    text = {name: base64.b64decode(value).decode().splitlines() for name, value in secret["data"].items()}
    assert text == {
        "gateway": [keys.derive_key(root, keys.GATEWAY_TO_ENGINE, "uid-1") for root in ("g1", "g2")],
        "admin": [keys.derive_key("a1", keys.OPERATOR_TO_ENGINE, "uid-1")],
    }


async def test_the_engines_admin_key_goes_with_every_order(world: World, document: Any) -> None:
    world.cluster.resource = document(concurrency={"initial": 9})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    root = world.cluster.secrets[ADMIN_KEY]["key"]
    assert world.engine.admin_keys == [f"Bearer {keys.derive_key(root, keys.OPERATOR_TO_ENGINE, 'uid-1')}"]


async def test_clients_without_the_keys_that_a_manifest_asks_for_are_let_in_nowhere(document: Any) -> None:
    cluster = FakeCluster()
    cluster.resource = document(**OWN)
    operator = Operator(cluster, Settings())
    route = (await operator.routing_table()).models["ride"]
    assert (route.fleet, route.key_digests) == ("uid-1", [])


async def test_a_fleet_whose_keys_could_not_be_read_is_unread_and_has_no_row(document: Any) -> None:
    """The gateways' last row has them: an empty list would lock every client out."""
    cluster = FakeCluster()
    cluster.resource = document(**OWN)
    cluster.unreadable = ClusterError("away")
    table = await Operator(cluster, Settings()).routing_table()
    assert (table.models, table.unread) == ({}, ["ride"])


async def test_only_a_gateway_reads_the_routing_table(document: Any) -> None:
    cluster = FakeCluster()
    cluster.resource = document()
    operator = Operator(cluster, Settings(gateway_url="http://127.0.0.1:9"))
    server, port = await serve_app(build_app(operator), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/routes"

    async def status(key: str | None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            return answer.status

    assert await status(None) == 401
    root = cluster.secrets[GATEWAY_KEY]["key"]
    assert await status(root) == await status(keys.derive_key(root, keys.GATEWAY_TO_ENGINE)) == 401
    assert await status(keys.derive_key(root, keys.GATEWAY_TO_OPERATOR)) == 200
    assert cluster.secrets_read.count(GATEWAY_KEY) == 2, "once before it was made, and not for each request"
    assert KEY in operator._cluster.list()
    await operator.stop()
    await server.close()


async def test_roots_are_made_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway waits for its root, so that no client would be served."""
    monkeypatch.setattr(runtime, "ROOT_KEYS_RETRY_SECONDS", 0.01)
    cluster = FakeCluster()
    cluster.unreadable = ClusterError("away")
    operator = Operator(cluster, Settings(gateway_url="http://127.0.0.1:9"))
    making = asyncio.create_task(operator.make_root_keys())
    await asyncio.sleep(0.05)
    assert not making.done()
    cluster.unreadable = None
    await asyncio.wait_for(making, 60)
    assert cluster.secrets.keys() == {ADMIN_KEY, GATEWAY_KEY}
