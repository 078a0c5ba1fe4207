"""Requests that the API server refuses or answers late stop neither a single shard nor the fleets beside."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from paternoster_operator.cluster import lease as leases
from paternoster_operator.cluster.buckets import Shard
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.shards.labelling import BucketLabels
from paternoster_operator.shards.ownership import FleetOwnership

FLEETS = [Key("n", "refused"), Key("n", "allowed")]


class UnreadableRecord:
    """A record of claims in a cluster whose Role does not name it."""

    def __init__(self, *, retriable: bool) -> None:
        self._retriable = retriable

    def get(self, key: Key) -> Mapping[str, str] | None:
        return {}

    async def has_children(self, key: Key) -> bool:
        return True

    async def read_config_map(self, key: Key) -> tuple[Mapping[str, str], str] | None:
        raise ClusterError("configmaps is forbidden", retriable=self._retriable)

    async def write_config_map(self, key: Key, data: Mapping[str, str], version: str | None) -> str | None:
        raise AssertionError

    async def read_lease(self, key: Key) -> tuple[str, str]:
        raise AssertionError


@pytest.mark.parametrize(("retriable", "count", "owns"), [(False, 1, True), (True, 1, False), (False, 2, False)])
async def test_a_single_shard_that_may_not_read_the_record_has_all(retriable: bool, count: int, owns: bool) -> None:
    async def let_go(_: Collection[int]) -> None:
        raise AssertionError

    record, gained = UnreadableRecord(retriable=retriable), list[int]()
    ownership = FleetOwnership(Shard(0, count), record, Key("s", "operator"), lambda: 1, gained.extend, let_go)
    following = asyncio.create_task(ownership.follow())
    await asyncio.sleep(0.05)
    following.cancel()
    assert ownership.owns(Key("n", "f")) is owns
    assert bool(gained) is owns


class RefusingObjects:
    """Objects of two fleets; those of the first cannot be labelled."""

    def __init__(self) -> None:
        self.labelled: list[str] = []

    def list_mislabelled(self, key: Key) -> Sequence[tuple[str, str]]:
        return [("Deployment", key.name), ("LLMDeployment", key.name)]

    def list_in_buckets(self, buckets: Collection[int]) -> Sequence[Key]:
        return FLEETS

    async def label_object(self, key: Key, kind: str, name: str) -> None:
        if key == FLEETS[0]:
            raise ClusterError("admission webhook denied the request", retriable=False)
        self.labelled.append(f"{kind} {name}")


async def test_an_object_that_cannot_be_labelled_keeps_no_other_fleet_waiting() -> None:
    objects = RefusingObjects()
    await BucketLabels(objects, lambda _: True).label_buckets({0})
    assert objects.labelled == ["Deployment allowed", "LLMDeployment allowed"]


async def test_a_renewal_that_ends_too_late_begins_another_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was begun in time, but until it ended the holder could not act."""
    now = [100.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    lock = object.__new__(leases._Lock)

    async def renew(seconds: float) -> bool:
        now[0] += seconds
        return True

    assert await lock._is_done(renew(0.1))
    terms = lock.terms
    now[0] += leases.RENEW_SECONDS - 2
    assert await lock._is_done(renew(1.0))
    assert lock.terms == terms
    now[0] += leases.RENEW_SECONDS - 2
    assert await lock._is_done(renew(2.0))
    assert lock.terms == terms + 1
