"""Requests that the API server refuses or answers late stop neither a single shard nor the fleets beside."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import kopf
import pytest
from tests.operator.reconcile.world import KEY, FakeCluster

from paternoster_operator import handlers
from paternoster_operator.cluster import lease as leases
from paternoster_operator.cluster.buckets import Shard
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings
from paternoster_operator.shards.labelling import BucketLabels
from paternoster_operator.shards.ownership import FleetOwnership

FLEETS = [Key("n", "refused"), Key("n", "allowed")]


class UnreadableRecord:
    """A record of claims in a cluster whose Role does not name it."""

    def __init__(self, *, retriable: bool) -> None:
        self._retriable = retriable

    def get(self, key: Key) -> Mapping[str, str] | None:
        return {}

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None:
        return None

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
    await BucketLabels(objects, lambda _: True, is_any).label_buckets({0})
    assert objects.labelled == ["Deployment allowed", "LLMDeployment allowed"]


async def is_any(_: Key) -> bool:
    return True


class LabelledFleets(FakeCluster):
    """A cluster of one fleet, which counts what is labelled of it."""

    def __init__(self, document: Any, installation: str | None, *, seen: bool) -> None:
        super().__init__()
        self.there = {**document(), "status": {} if installation is None else {"installation": installation}}
        self.resource = self.there if seen else None
        self.labelled: list[str] = []

    def list_mislabelled(self, key: Key) -> Sequence[tuple[str, str]]:
        return [("Pod", "pod"), ("LLMDeployment", key.name)]

    def list_in_buckets(self, buckets: Collection[int]) -> Sequence[Key]:
        return [KEY]

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None:
        return self.there

    async def label_object(self, key: Key, kind: str, name: str) -> None:
        self.labelled.append(kind)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(("installation", "count"), [(None, 4), ("system/one", 4), ("elsewhere/two", 0)])
async def test_what_another_installation_reconciles_is_not_labelled(
    document: Any, installation: str | None, count: int, seen: bool
) -> None:
    """Two releases of the chart watch one cluster; another shard's watch may have the LLMDeployment."""
    cluster = LabelledFleets(document, installation, seen=seen)
    operator = Operator(cluster, Settings(installation="system/one"))
    memo = kopf.Memo(cluster=cluster, operator=operator)
    labels = BucketLabels(cluster, lambda _: True, lambda key: handlers.is_ours(memo, key))
    await labels.label_buckets({0})
    await labels._label_if_allowed(KEY)
    assert len(cluster.labelled) == count


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
