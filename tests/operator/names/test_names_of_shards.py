"""Operators that each see a part of the fleets share one record of served names."""

from typing import Any

import pytest
from tests.operator.names.test_claims_of_fleets import NEW, OLD, OWNER, THIEF, ConfigMap, Fleets

from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.directory import Directory
from paternoster_operator.names.record import Entry, NameRecord
from paternoster_operator.names.record_store import RecordStore
from paternoster_operator.settings import Names


class ShardsNames:
    """The names as one shard's operator has them, which owns the fleets ``own``."""

    def __init__(self, document: Any, config_map: ConfigMap, *own: Key) -> None:
        self.fleets = Fleets(document)
        self.config_map = config_map
        self.directory = Directory(
            self.fleets, Names.GLOBAL, store=RecordStore(config_map, writers=2),
            owns=lambda key: key in own, sees_all=lambda key: key in own, read_fleet=self._read_fleet,
        )  # fmt: skip
        self.unseen: dict[Key, Any] = {}
        """Fleets that the API server has, and no watch of this shard."""
        self.fleet_reads: list[Key] = []
        self.refused = False

    async def _read_fleet(self, key: Key) -> Any:
        self.fleet_reads.append(key)
        if self.refused:
            raise ClusterError("GET: HTTP 503: away")
        return self.unseen.get(key, self.fleets.documents.get(key))

    async def follow(self) -> None:
        await self.directory._follow_once(acting=True)

    async def served(self) -> dict[Key, tuple[str, ...]]:
        return {
            Key(each.metadata.namespace, each.metadata.name): names
            for names, each in await self.directory.list_served()
        }


@pytest.fixture
def shards(document: Any) -> tuple[ShardsNames, ShardsNames]:
    config_map = ConfigMap()
    return ShardsNames(document, config_map, OWNER), ShardsNames(document, config_map, THIEF)


async def test_a_name_of_another_shards_fleet_is_taken(shards: tuple[ShardsNames, ShardsNames]) -> None:
    one, two = shards
    one.fleets.put(OWNER, "llama", created=NEW)
    two.fleets.put(THIEF, "llama", created=OLD)
    await one.follow()
    await two.follow()
    resource = two.directory.get_resource(THIEF)
    assert resource is not None
    has, refusal = await two.directory.claim_names(resource)
    assert (has, refusal and refusal[0]) == ((), "ServedNameTaken")
    assert (await one.served(), await two.served()) == ({OWNER: ("llama",)}, {})
    assert one.config_map.record == NameRecord({OWNER: Entry(names=("llama",))})


async def test_a_fleet_that_another_shard_sees_is_not_gone(shards: tuple[ShardsNames, ShardsNames]) -> None:
    one, two = shards
    one.fleets.put(OWNER, "llama")
    two.fleets.put(THIEF, "mine")
    for _ in range(2):
        await one.follow()
        await two.follow()
    assert two.config_map.record == NameRecord({OWNER: Entry(names=("llama",)), THIEF: Entry(names=("mine",))})
    del one.fleets.documents[OWNER]
    await two.follow()
    assert two.config_map.record.fleets[OWNER].gone_since is None
    await one.follow()
    assert one.config_map.record.fleets[OWNER].gone_since is not None, "its own shard has recorded that"
    assert (await two.served()) == {THIEF: ("mine",)}


async def test_a_fleet_that_is_on_its_way_to_this_shard_is_not_gone(shards: tuple[ShardsNames, ShardsNames]) -> None:
    """It has the bucket before its watch has the fleet, or somebody edited the fleet's label: its route stays."""
    one, _ = shards
    one.fleets.put(OWNER, "llama")
    await one.follow()
    one.unseen[OWNER] = one.fleets.documents.pop(OWNER)
    await one.follow()
    assert one.directory.recorded == {OWNER: Entry(names=("llama",))}
    one.refused = True
    await one.follow()
    assert one.directory.recorded == {OWNER: Entry(names=("llama",))}
    assert one.fleet_reads == [OWNER], "once a second at most"


@pytest.mark.parametrize("left", [{"deletionTimestamp": NEW}, None])
async def test_a_fleet_is_gone_that_the_cluster_has_no_more(shards: tuple[ShardsNames, ShardsNames], left: Any) -> None:
    one, _ = shards
    one.fleets.put(OWNER, "llama")
    await one.follow()
    document = one.fleets.documents.pop(OWNER)
    if left is not None:
        one.unseen[OWNER] = {**document, "metadata": {**document["metadata"], **left}}
    await one.follow()
    assert one.directory.recorded[OWNER].gone_since is not None
    await one.follow()
    assert one.fleet_reads == [OWNER]


async def test_writers_that_come_at_once_lose_nothing(shards: tuple[ShardsNames, ShardsNames]) -> None:
    one, two = shards
    one.fleets.put(OWNER, "llama")
    two.fleets.put(THIEF, "mine")
    await one.directory._store.read(dict)
    await two.directory._store.read(dict)
    await one.directory._store.write(one.directory._find_record)
    await two.directory._store.write(two.directory._find_record)
    assert two.config_map.record == NameRecord({OWNER: Entry(names=("llama",)), THIEF: Entry(names=("mine",))})
    assert two.directory.is_read, "gateways would get 503"


async def test_a_writer_that_always_comes_second_gives_up(shards: tuple[ShardsNames, ShardsNames]) -> None:
    one, _ = shards
    one.fleets.put(OWNER, "llama")
    await one.directory._store.read(dict)

    async def refuse(*_: object) -> None:
        return None

    one.config_map.write = refuse  # type: ignore[method-assign]
    one.config_map.data = {"names.json": NameRecord({THIEF: Entry(names=("mine",))}).encode()}
    with pytest.raises(ClusterError, match="another operator"):
        await one.directory._store.write(one.directory._find_record)
    assert not one.directory.is_read


async def test_a_fleet_that_this_shard_does_not_own_has_its_recorded_names(document: Any) -> None:
    """Another shard is to rename it, and this operator is the one whose watches have it just now."""
    config_map = ConfigMap()
    await ShardsNames(document, config_map).follow()
    config_map.data = {"names.json": NameRecord({OWNER: Entry(names=("llama",))}).encode()}
    config_map.version += 1
    standby = ShardsNames(document, config_map)
    standby.fleets.put(OWNER, "renamed")
    await standby.follow()
    assert await standby.served() == {OWNER: ("llama",)}
    assert config_map.record == NameRecord({OWNER: Entry(names=("llama",))})
