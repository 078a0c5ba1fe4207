"""Names by the routing table: neither a forged status nor a fleet that waits takes another namespace's name."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.operator.reconcile.world import FakeCluster

from paternoster_contract.routing import ModelRoute
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.record import FIELD, Entry, NameRecord
from paternoster_operator.runtime import Operator

OWNER, THIEF = Key("team-b", "owner"), Key("team-a", "thief")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


class Fleets(FakeCluster):
    """Fleets that sleep, by key."""

    def __init__(self, document: Any) -> None:
        super().__init__()
        self._document = document
        self.documents: dict[Key, Any] = {}
        self.versions = 0

    def put(self, key: Key, *names: str, created: str = NEW, status: Mapping[str, Any] | None = None) -> None:
        self.versions += 1
        made = self._document(model={"source": "package://m", "servedName": names[0], "aliases": list(names[1:])})
        made["metadata"] |= {
            "name": key.name, "namespace": key.namespace, "uid": f"{key}-{created}", "creationTimestamp": created,
            "resourceVersion": str(self.versions),
        }  # fmt: skip
        self.documents[key] = {**made, "status": dict(status or {})}

    def list(self) -> Sequence[Key]:
        return [*self.documents]

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self.documents.get(key)

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        return []


class ConfigMap:
    """The object in which the record is, with the faults that a test sets."""

    def __init__(self) -> None:
        self.data: Mapping[str, str] | None = None
        self.version = 0
        self.writes = 0
        self.unreadable = self.refused = False
        self.earlier: dict[str, tuple[str, ...]] = {}

    async def read(self) -> tuple[Mapping[str, str], str] | None:
        if self.unreadable:
            raise ClusterError("GET: HTTP 403: not allowed", retriable=False)
        return None if self.data is None else (self.data, str(self.version))

    async def write(self, data: Mapping[str, str], version: str | None) -> str | None:
        if self.refused:
            raise ClusterError("PUT: HTTP 500: no")
        if version != (None if self.data is None else str(self.version)):
            return None
        self.data, self.version, self.writes = data, self.version + 1, self.writes + 1
        return str(self.version)

    async def read_published_routes(self) -> Mapping[str, ModelRoute]:
        return {first: ModelRoute(fleet=uid, aliases=aliases) for uid, (first, *aliases) in self.earlier.items()}

    @property
    def record(self) -> NameRecord:
        return NameRecord.decode((self.data or {})[FIELD])


@pytest.fixture
def fleets(document: Any) -> Fleets:
    return Fleets(document)


@pytest.fixture
def config_map() -> ConfigMap:
    return ConfigMap()


async def lead(fleets: Fleets, config_map: ConfigMap) -> Operator:
    """An operator that has read the record and written what it lacked."""
    operator = Operator(fleets, name_record=config_map)
    await operator._directory._follow_once(acting=True)
    return operator


async def owners(operator: Operator) -> dict[str, str]:
    """Uids by every name that clients can use."""
    table = await operator.routing_table()
    return {name: table.models[first].fleet for name, first in table.first_names.items()}


async def test_an_older_fleet_with_a_forged_status_takes_no_name(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(THIEF, "mine", created=OLD)
    fleets.put(OWNER, "llama", created=NEW, status={"servedModel": "llama"})
    await lead(fleets, config_map)
    forged = {"servedModel": "llama", "servedAliases": ["mine"]}
    fleets.put(THIEF, "mine", "llama", created=OLD, status=forged)
    for operator in (await lead(fleets, config_map), Operator(fleets, name_record=config_map)):
        await operator._directory._follow_once(acting=False)
        assert await owners(operator) == {"llama": f"{OWNER}-{NEW}", "mine": f"{THIEF}-{OLD}"}


async def test_a_fleet_made_again_has_its_name_before_one_that_waited(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    await lead(fleets, config_map)
    fleets.put(THIEF, "mine", "llama", created="2026-01-02T00:00:00Z")
    operator = await lead(fleets, config_map)
    del fleets.documents[OWNER]
    await operator._directory._follow_once(acting=True)
    assert await owners(operator) == {}, "a fleet has all the names that it wants, or those that it had"
    resource = operator._directory.get_resource(THIEF)
    assert resource is not None
    _, refusal = await operator._directory.claim_names(resource)
    assert refusal is not None
    assert refusal[0] == "ServedNameTaken"
    assert "llama is reserved for namespace team-b" in refusal[1]
    fleets.put(OWNER, "llama", created=NEW)
    operator = await lead(fleets, config_map)
    assert await owners(operator) == {"llama": f"{OWNER}-{NEW}"}


async def test_a_name_that_another_fleet_of_the_namespace_wants_is_free_at_once(
    fleets: Fleets, config_map: ConfigMap
) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    await lead(fleets, config_map)
    del fleets.documents[OWNER]
    fleets.put(Key("team-b", "next"), "llama")
    assert await owners(await lead(fleets, config_map)) == {"llama": f"{Key('team-b', 'next')}-{NEW}"}


async def test_a_new_name_has_a_route_once_it_is_recorded(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    operator = await lead(fleets, config_map)
    fleets.put(OWNER, "llama-2", "llama", created=OLD)
    config_map.refused = True
    assert list(await owners(operator)) == ["llama"], "it has what it had"
    resource = operator._directory.get_resource(OWNER)
    assert resource is not None
    with pytest.raises(ClusterError):
        await operator._directory.claim_names(resource)
    config_map.refused = False
    assert await operator._directory.claim_names(resource) == (("llama-2", "llama"), None)
    assert set(await owners(operator)) == {"llama", "llama-2"}
    assert config_map.record.fleets[OWNER].names == ("llama-2", "llama")


async def test_while_the_record_cannot_be_read_there_is_no_table_and_statuses_stay(
    fleets: Fleets, config_map: ConfigMap
) -> None:
    config_map.unreadable = True
    operator = Operator(fleets, name_record=config_map)
    with pytest.raises(ClusterError):
        await operator._directory._follow_once(acting=True)
    assert operator.synced
    assert not operator.has_routes
    fleets.put(OWNER, "llama", created=OLD, status={"servedModel": "llama", "servedAliases": ["l"]})
    resource = operator._directory.get_resource(OWNER)
    assert resource is not None
    assert await operator._directory.claim_names(resource) == (("llama", "l"), None)
    config_map.unreadable = False
    await operator._directory._follow_once(acting=True)
    assert operator.has_routes


@pytest.mark.parametrize("before", [None, "{", '{"fleets": {"team-a/thief": {"names": []}}}'])
async def test_a_record_that_is_not_there_begins_with_the_published_routes(
    fleets: Fleets, config_map: ConfigMap, before: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """And not with statuses, nor with the older fleet that wants the name by now."""
    config_map.data = None if before is None else {FIELD: before}
    config_map.earlier = {f"{OWNER}-{NEW}": ("llama",), "gone": ("mine",)}
    fleets.put(OWNER, "llama", created=NEW)
    fleets.put(THIEF, "mine", "llama", created=OLD, status={"servedModel": "llama"})
    standby = Operator(fleets, name_record=config_map)
    await standby._directory._follow_once(acting=False)
    assert await owners(standby) == {"llama": f"{OWNER}-{NEW}"}
    assert config_map.writes == 0
    assert await owners(await lead(fleets, config_map)) == {"llama": f"{OWNER}-{NEW}"}
    assert config_map.record.fleets[OWNER].names == ("llama",)
    assert ("made again" in caplog.text) == (before is not None)


async def test_a_standby_that_finds_no_record_has_the_table_of_one_that_makes_it(
    fleets: Fleets, config_map: ConfigMap
) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    standby = Operator(fleets, name_record=config_map)
    await standby._directory._follow_once(acting=False)
    assert await owners(standby) == await owners(await lead(fleets, config_map)) == {"llama": f"{OWNER}-{OLD}"}


async def test_a_standby_follows_the_record_alone(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    await lead(fleets, config_map)
    standby = Operator(fleets, name_record=config_map)
    await standby._directory._follow_once(acting=False)
    fleets.put(THIEF, "mine")
    assert list(await owners(standby)) == ["llama"]
    await lead(fleets, config_map)
    await standby._directory._follow_once(acting=False)
    assert set(await owners(standby)) == {"llama", "mine"}


async def test_a_fleet_that_cannot_be_used_keeps_its_name(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    await lead(fleets, config_map)
    fleets.put(OWNER, "llama", created=OLD)
    fleets.documents[OWNER]["spec"]["replicas"] = "many"
    fleets.put(THIEF, "llama", created=OLD)
    operator = await lead(fleets, config_map)
    assert await owners(operator) == {}
    assert config_map.record.fleets[OWNER].gone_since is None


async def test_an_edit_of_the_record_by_an_administrator_is_followed(fleets: Fleets, config_map: ConfigMap) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    fleets.put(THIEF, "llama", created=NEW)
    operator = await lead(fleets, config_map)
    assert await owners(operator) == {"llama": f"{OWNER}-{OLD}"}
    record = NameRecord({THIEF: Entry(names=("llama",))})
    config_map.data, config_map.version = {FIELD: record.encode()}, config_map.version + 1
    await operator._directory._follow_once(acting=True)
    assert await owners(operator) == {"llama": f"{THIEF}-{NEW}"}


async def test_many_new_fleets_are_parsed_one_in_a_turn(fleets: Fleets, config_map: ConfigMap) -> None:
    for number in range(20):
        fleets.put(Key("hostile", f"h{number}"), f"h{number}")
    operator, parsed = Operator(fleets, name_record=config_map), list[int]()

    async def count_parsed() -> None:
        while True:
            parsed.append(len(operator._directory._parsed))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_parsed())
    await operator._directory._follow_once(acting=True)
    counting.cancel()
    assert max(after - before for before, after in itertools.pairwise([*parsed, 20])) == 1


async def test_a_fleet_of_the_same_namespace_starts_and_has_the_name_once_the_other_is_gone(
    fleets: Fleets, config_map: ConfigMap
) -> None:
    """A rename: the new one is there before the old one is deleted, at first in the foreground."""
    renamed = Key(OWNER.namespace, "renamed")
    fleets.put(OWNER, "llama", created=OLD)
    operator = await lead(fleets, config_map)
    fleets.put(renamed, "llama", created=NEW)
    directory = operator._directory
    resource = directory.get_resource(renamed)
    assert resource is not None
    names, refusal = await directory.claim_names(resource)
    assert (names, (refusal or ("",))[0]) == ((), "ServedNameTaken")
    assert "its replicas start meanwhile" in (refusal or ("", ""))[1]
    assert directory.may_start_unnamed(resource)
    assert await owners(operator) == {"llama": f"{OWNER}-{OLD}"}
    fleets.documents[OWNER]["metadata"]["deletionTimestamp"] = NEW
    operator.enqueue_unnamed(OWNER.namespace)
    assert await directory.claim_names(resource) == (("llama",), None)
    assert await owners(operator) == {"llama": f"{renamed}-{NEW}"}


async def test_a_fleet_starts_without_a_name_only_where_its_own_namespace_has_it(
    fleets: Fleets, config_map: ConfigMap
) -> None:
    fleets.put(OWNER, "llama", created=OLD)
    fleets.put(THIEF, "llama", created=NEW)
    fleets.put(Key(OWNER.namespace, "both"), "other", "llama", created=NEW)
    fleets.put(THIEF._replace(name="neighbour"), "mine", created=OLD)
    operator = await lead(fleets, config_map)
    # One that serves by a name goes on as it is: new engines would lack that name.
    fleets.put(Key(OWNER.namespace, "both"), "other", created=NEW)
    await operator._directory._follow_once(acting=True)
    fleets.put(Key(OWNER.namespace, "both"), "another", "llama", created=NEW)
    # One of its two names is another namespace's.
    fleets.put(Key(OWNER.namespace, "mixed"), "llama", "mine", created=NEW)
    for key in (THIEF, Key(OWNER.namespace, "both"), Key(OWNER.namespace, "mixed")):
        resource = operator._directory.get_resource(key)
        assert resource is not None
        _, refusal = await operator._directory.claim_names(resource)
        assert refusal is not None
        assert not operator._directory.may_start_unnamed(resource), key
