"""Hashed keys with names and limits: who is let in, the errors of bad entries, what engines believe."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from tests.operator.reconcile.world import FakeCluster

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.engine_args import Installation, engine_args
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.secret import key_sources
from paternoster_operator.keys.client_keys import LONGEST_LIST, read_key_list
from paternoster_operator.keys.fleet_keys import MAX_KEYS, BadKeyList, FleetKeys, UnusableKeys
from paternoster_operator.keys.key_secrets import KeySecrets
from paternoster_operator.routes.row import build_route
from paternoster_operator.settings import Settings

Resource = Callable[..., LLMDeployment]
LIST = f"""
- name: acme
  sha256: {digest_key("a")}
  weight: 3
  minPriority: -5
  maxPriority: 10
  maxQueued: 4
  maxRunning: 2
  tokensPerSecond: 100
  tokenBurst: 500
  expires: 2030-01-01T00:00:00Z
- {{name: acme, sha256: {digest_key("b")}}}
"""
ACME = Identity(
    tenant="acme", weight=3, min_priority=-5, max_priority=10, max_queued=4, max_running=2,
    tokens_per_second=100, token_burst=500, expires=datetime(2030, 1, 1, tzinfo=UTC),
)  # fmt: skip
TENANTS = {"security": {"apiKeySecretRef": {"name": "plain"}, "apiKeys": [{"name": "one"}, {"name": "two"}]}}


def test_an_entry_says_who_sends_a_key_and_what_that_one_may() -> None:
    found = read_key_list(LIST)
    assert found.identities == {digest_key("a"): ACME, digest_key("b"): Identity(tenant="acme")}
    assert not found.faults


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a b", "sha256": digest_key("x")}, "name"),
        ({"name": "a", "sha256": "hunter2-hunter2"}, "sha256"),
        ({"name": "a"}, "sha256: Field required"),
        ({"name": "a", "sha256": digest_key("x"), "weight": 0}, "weight"),
        ({"name": "a", "sha256": digest_key("x"), "tokensPerSecond": float("nan")}, "tokensPerSecond"),
        ({"name": "a", "sha256": digest_key("x"), "minPriority": 5, "maxPriority": 4}, "minPriority is 5"),
        ({"name": "a", "sha256": digest_key("x"), "expires": "2030-01-01T00:00:00"}, "must have an offset"),
        ({"name": "a", "sha256": digest_key("x"), "unheard-of": "hunter2"}, "unheard-of"),
        ({"name": "a", "sha256": digest_key("a")}, "entry before"),
        ("hunter2", "entry 3"),
    ],
)
def test_a_bad_entry_is_named_without_what_it_holds_and_the_others_are_valid(entry: object, message: str) -> None:
    found = read_key_list(f"{LIST}- {json.dumps(entry)}".replace("NaN", ".nan"))
    assert found.identities.keys() == {digest_key("a"), digest_key("b")}
    (fault,) = found.faults
    assert fault.startswith("entry 3: ")
    assert message in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize("text", ["", "a: 1", "- [", "[" * 5000, "x" * (LONGEST_LIST + 1), "\x00", "!!python/x 1"])
def test_what_is_no_list_opens_nothing(text: str) -> None:
    found = read_key_list(text)
    assert not found.identities
    assert len(found.faults) == 1


async def test_what_is_right_opens_though_something_else_is_wrong(resource: Resource) -> None:
    cluster, fleet = FakeCluster(), resource(**TENANTS)
    cluster.secrets |= {
        Key("lifts", "plain"): {"key": "p\na"},
        Key("lifts", "one"): {"key": LIST},
        Key("lifts", "two"): {"key": json.dumps([{"name": "late", "sha256": digest_key("c")}, {"name": "bad"}])},
    }
    clients = await FleetKeys(KeySecrets(cluster), Settings()).client_keys(fleet)
    assert clients.digests is not None
    assert set(clients.digests) == {digest_key(key) for key in "pabc"}
    assert clients.identities[digest_key("a")] == ACME, "of a key that is there in plain, too"
    assert isinstance(clients.fault, BadKeyList)
    assert "spec.security.apiKeys[1], Secret two, key key: entry 2: sha256" in str(clients.fault)
    route = build_route(fleet, clients.digests, clients.identities)
    assert route.find_identity(digest_key("a")) == ACME
    assert route.find_identity(digest_key("c")) == Identity(tenant="late")
    who = route.find_identity(digest_key("p"))
    assert who is not None
    assert who.tenant == f"key-{digest_key('p')[:8]}"
    del cluster.secrets[Key("lifts", "one")]
    gone = await FleetKeys(KeySecrets(cluster), Settings()).client_keys(fleet)
    assert isinstance(gone.fault, UnusableKeys)
    assert set(gone.digests or ()) == {digest_key(key) for key in "pac"}


async def test_a_fleet_has_so_many_keys_and_no_more(resource: Resource) -> None:
    cluster = FakeCluster()
    many = [{"name": "n", "sha256": digest_key(str(i))} for i in range(MAX_KEYS)]
    cluster.secrets |= {Key("lifts", "one"): {"key": json.dumps(many)}, Key("lifts", "two"): {"key": LIST}}
    fleet = resource(security={"apiKeys": [{"name": "one"}, {"name": "two"}]})
    clients = await FleetKeys(KeySecrets(cluster), Settings()).client_keys(fleet)
    assert len(clients.digests or ()) == MAX_KEYS
    assert f"more than {MAX_KEYS} keys" in str(clients.fault)


def test_engines_believe_identities_where_the_gateway_alone_has_a_key(resource: Resource) -> None:
    fleet = resource(**TENANTS)
    behind = engine_args(fleet, Installation(behind_gateway=True))
    assert (behind.identity_header, behind.order, behind.cache_isolation) == (True, "fair-share", "tenant")
    sources = key_sources(fleet.spec.security, ChildNames.from_resource(fleet), behind_gateway=True)["api"]
    assert [source["secret"]["items"][0]["path"] for source in sources] == ["gateway"], "no client's key opens them"
    listed = resource(security={"apiKeys": [{"name": "one"}]})
    alone = engine_args(listed)
    assert not alone.identity_header
    assert alone.api_keys is not None
    assert key_sources(listed.spec.security, ChildNames.from_resource(listed), behind_gateway=False)["api"] == []
    shared = engine_args(resource(engine={"cacheIsolation": "Fleet", "order": "priority", "minPriority": -3}))
    assert (shared.cache_isolation, shared.order, shared.min_priority) == ("fleet", "priority", -3)
    assert engine_args(resource()).order is None
