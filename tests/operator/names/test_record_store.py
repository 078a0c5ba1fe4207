"""The record is written once for many changes, and no writer overwrites another."""

import asyncio

import pytest
from tests.operator.names.test_claims_of_fleets import ConfigMap

from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.record import Entry, NameRecord
from paternoster_operator.names.record_store import WRITE_SECONDS, RecordStore


def record(*fleets: str) -> NameRecord:
    return NameRecord({Key("n", fleet): Entry(names=(fleet,)) for fleet in fleets})


async def test_many_changes_at_once_are_one_write_and_the_next_waits() -> None:
    now, pauses = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds
        await asyncio.sleep(0)

    config_map = ConfigMap()
    store = RecordStore(config_map, clock=lambda: now, sleep=sleep)
    await store.read(dict)
    wanted = record("a")
    await asyncio.gather(*(store.write(lambda: wanted) for _ in range(100)))
    assert config_map.writes == 1
    wanted = record("a", "b")
    await asyncio.gather(*(store.write(lambda: wanted) for _ in range(100)))
    assert config_map.writes == 2
    assert pauses == [0.0, WRITE_SECONDS]
    assert config_map.record == store.record == wanted


async def test_of_two_writers_the_second_reads_again() -> None:
    config_map, faults = ConfigMap(), list[str]()
    one, two = RecordStore(config_map), RecordStore(config_map, faults.append)
    for store in (one, two):
        await store.read(dict)
    await one.write(lambda: record("a"))
    with pytest.raises(ClusterError, match="another operator"):
        await two.write(lambda: record("b"))
    assert config_map.record == record("a")
    assert not two.is_read
    await two.read(dict)
    assert two.record == record("a")
    await two.write(lambda: record("a", "b"))
    assert config_map.record == record("a", "b")


@pytest.mark.parametrize("left", [None, {"names.json": "?"}])
async def test_a_record_that_was_read_stays_where_its_object_is_gone_or_invalid(left: dict[str, str] | None) -> None:
    """An API server that answers 404 while it fails takes no name, and so no route, from a fleet."""
    config_map = ConfigMap()
    leader, standby = RecordStore(config_map), RecordStore(config_map)
    await leader.read(dict)
    await leader.write(lambda: record("a"))
    await standby.read(dict)
    config_map.data, config_map.version = left, config_map.version + 1
    for store in (leader, standby):
        await store.read(dict)
        assert store.record == record("a")
    await leader.write(lambda: record("a"))
    assert config_map.record == record("a"), "it is written again"


async def test_faults_are_counted() -> None:
    config_map, faults = ConfigMap(), list[str]()
    store = RecordStore(config_map, faults.append)
    config_map.unreadable = True
    with pytest.raises(ClusterError):
        await store.read(dict)
    config_map.unreadable, config_map.data, config_map.refused = False, {"names.json": "?"}, True
    await store.read(dict)
    with pytest.raises(ClusterError):
        await store.write(lambda: record("a"))
    assert faults == ["read", "invalid", "write"]
