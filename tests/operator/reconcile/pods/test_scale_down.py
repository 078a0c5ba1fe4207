"""Fewer replicas: what is surplus gets no more requests, and its pod ends once it is idle."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, PodEngine, World

from paternoster_contract.labels import DELETION_COST, SCALE_DOWN
from paternoster_operator.routes.table import RoutesTable
from paternoster_operator.settings import Settings

Document = Callable[..., dict[str, Any]]
START = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


@pytest.fixture
async def busy() -> AsyncIterator[PodEngine]:
    """A second engine, with more requests than the world's own."""
    async with PodEngine("second", numbers={"running": 7}).listening() as engine:
        yield engine


@pytest.fixture
async def surplus(world: World, busy: PodEngine, document: Document) -> World:
    """Two replicas, of which one is to go: ``a`` has seven requests, ``b`` three."""
    began = world.now
    world.restart_operator = lambda: restart(world, began)  # type: ignore[method-assign]
    world.restart_operator()
    world.engine.numbers["running"] = 3
    world.cluster.shown_pods = [busy.pod("a"), world.engine.pod("b")]
    world.cluster.resource = document(replicas=2, model={"source": "package://m", "servedName": "lift/1"})
    await world.reconcile()
    counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "observedGeneration": 2}
    world.cluster.children["Deployment"] |= {"status": counts}
    resize(world, 1, document)
    await world.reconcile()
    return world


def restart(world: World, began: float) -> None:
    """An operator of an installation with a gateway."""
    settings = Settings(gateway_url="http://gateways")
    world.reconciler = world.new_reconciler(settings, wall=lambda: START + timedelta(seconds=world.now - began))


def resize(world: World, replicas: int, document: Document) -> None:
    assert world.cluster.resource is not None
    spec = document(replicas=replicas, model={"source": "package://m", "servedName": "lift/1"})
    world.cluster.resource = {**spec, "status": world.cluster.statuses[-1]}


def drained(world: World) -> set[str]:
    return {pod for pod, annotations in world.cluster.annotations.items() if SCALE_DOWN in annotations}


async def routed(world: World) -> list[str]:
    observer = world.reconciler._observer
    table = await RoutesTable(world.cluster, observer._directory, observer._keys).build()
    return [replica.name for replica in table.table.models["lift/1"].replicas if replica.ready]


async def test_a_replica_with_requests_gets_no_more_and_ends_once_it_is_idle(surplus: World) -> None:
    world = surplus
    for _ in range(3):
        assert drained(world) == {"b"}, "it has the fewest requests"
        assert world.cluster.replicas == 2
        assert await routed(world) == ["lifts/a"]
        status = world.cluster.statuses[-1]
        counts = ("desiredReplicas", "replicas", "readyReplicas", "pendingReplicas", "drainingReplicas")
        assert [status[count] for count in counts] == [1, 1, 1, 0, 1]
        assert world.cluster.condition("Reconciling")["reason"] == "Draining"
        await world.reconcile(after=60)
    world.engine.numbers["running"] = 0
    await world.reconcile()
    assert world.cluster.replicas == 1
    assert {pod: made[DELETION_COST] for pod, made in world.cluster.annotations.items()} == {"a": "7", "b": "0"}


async def test_an_engine_that_does_not_report_costs_more_than_the_drained_one(surplus: World, busy: PodEngine) -> None:
    """Without a price it would cost 0 as well, and the Deployment could lose it in place of the other."""
    world = surplus
    busy.numbers["running"] = "unknown"
    world.engine.numbers["running"] = 0
    await world.reconcile(after=10)
    assert (drained(world), world.cluster.replicas) == ({"b"}, 1)
    prices = {pod: made.get(DELETION_COST) for pod, made in world.cluster.annotations.items()}
    assert prices == {"a": "1", "b": "0"}


async def test_a_drained_replica_serves_again_when_demand_returns(surplus: World, document: Document) -> None:
    world = surplus
    resize(world, 2, document)
    await world.reconcile()
    assert drained(world) == set()
    assert world.cluster.replicas == 2
    assert sorted(await routed(world)) == ["lifts/a", "lifts/b"]
    assert world.cluster.statuses[-1]["readyReplicas"] == 2


async def test_an_idle_replica_ends_once_gateways_have_heard_of_it(surplus: World) -> None:
    world = surplus
    world.engine.numbers["running"] = 0
    await world.reconcile(after=0.5)
    assert world.cluster.replicas == 2, "a request may still be on its way to it"
    await world.reconcile(after=2)
    assert world.cluster.replicas == 1


async def test_a_stuck_request_holds_a_replica_no_longer_than_a_drain_may_take(surplus: World) -> None:
    world = surplus
    await world.reconcile(after=290)
    assert world.cluster.replicas == 2
    await world.reconcile(after=15)
    assert world.cluster.replicas == 1, "spec.drain.timeoutSeconds is 300"
    assert {pod: made[DELETION_COST] for pod, made in world.cluster.annotations.items()} == {"a": "7", "b": "0"}


async def test_a_restarted_operator_goes_on_with_the_scale_down(surplus: World, document: Document) -> None:
    world = surplus
    auto = document(autoscaling={"minReplicas": 1, "maxReplicas": 4})
    world.cluster.resource = {**auto, "status": world.cluster.statuses[-1]}
    world.restart_operator()
    await world.reconcile()
    assert world.cluster.statuses[-1]["desiredReplicas"] == 1
    assert (drained(world), world.cluster.replicas) == ({"b"}, 2)


async def test_a_rollout_replaces_pods_in_its_own_order(surplus: World) -> None:
    world = surplus
    world.cluster.children["Deployment"]["status"] |= {"updatedReplicas": 1}
    await world.reconcile()
    assert (drained(world), world.cluster.replicas) == (set(), 1)


@pytest.mark.parametrize("value", ["true", "", "2026-11-26", "2026-11-26T12:00:00"])
async def test_an_annotation_that_is_no_time_is_none(world: World, document: Document, value: str) -> None:
    world.cluster.resource = document(replicas=1)
    world.cluster.shown_pods = [world.engine.pod("a", annotations={SCALE_DOWN: value})]
    await world.reconcile()
    assert world.cluster.statuses[-1]["readyReplicas"] == 1
    assert KEY in world.reconciler.fleets
