"""What reconcile takes from the field and gives back: the wall clock, starts, prices, news."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.operator.reconcile.world import PodEngine, World

from paternoster_contract.stats import GatewayModelStats, GatewayStats
from paternoster_operator.api.types.status import LLMDeploymentStatus
from paternoster_operator.cluster.port import Key
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.settings import Settings

KEY = Key("lifts", "ride")
Document = Callable[..., dict[str, Any]]
CREATED, READY = "2026-03-23T12:00:00Z", "2026-03-23T12:00:40Z"


class TimedWorld(World):
    """With a clock on the wall, settings, and metrics to look at."""

    settings = Settings()

    def restart_operator(self) -> None:
        self.wall = datetime(2026, 3, 23, 12, tzinfo=UTC)
        self.metrics = OperatorMetrics()
        self.reconciler = self.new_reconciler(self.settings, wall=lambda: self.wall)

    @property
    def status(self) -> dict[str, Any]:
        status = self.cluster.statuses[-1]
        LLMDeploymentStatus.model_validate(status)
        return status

    def sample(self, name: str, **labels: str) -> float | None:
        every = {"namespace": KEY.namespace, "name": KEY.name, **labels}
        return self.metrics.registry.get_sample_value(f"paternoster_operator_{name}", every)


@pytest.fixture
async def world() -> AsyncIterator[TimedWorld]:
    world = TimedWorld()
    async with world.engine.listening():
        yield world
        await world.scraper.close()


def started(engine: PodEngine, name: str) -> dict[str, Any]:
    """A pod that took 40 s."""
    pod = engine.pod(name, creationTimestamp=CREATED)
    pod["status"]["conditions"][0]["lastTransitionTime"] = READY
    return pod


async def test_a_schedule_begins_and_ends_by_the_clock_on_the_wall(world: TimedWorld, document: Document) -> None:
    lunch = {"name": "lunch", "start": "12:00", "end": "13:00", "minReplicas": 3}
    world.cluster.resource = document(autoscaling={"maxReplicas": 4, "schedules": [lunch]})
    await world.reconcile()
    assert world.cluster.replicas == 3
    assert world.status["bounds"] == {"minReplicas": 3, "maxReplicas": 4, "schedules": ["lunch"]}
    world.wall = world.wall.replace(hour=13)
    await world.reconcile()
    assert world.cluster.replicas == 3, "its end is a lower bound, not a reason to go"
    assert world.status["bounds"] == {"minReplicas": 1, "maxReplicas": 4, "schedules": []}


async def test_starts_are_learnt_told_and_remembered(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    assert "startup" not in world.status
    world.cluster.shown_pods = [world.engine.pod("a", ready=False, creationTimestamp=CREATED)]
    await world.reconcile()
    world.cluster.shown_pods = [started(world.engine, "a")]
    world.engine.numbers["start_seconds"] = {"imports": 8, "download": 0, "load": 20.4, "warm_up": 3}
    await world.reconcile()
    parts = {"download": 0, "imports": 8, "load": 20, "warmUp": 3}
    seen = {"lastSeconds": 40, "averageSeconds": 40, "observedStarts": 1, "lastParts": parts}
    assert world.status["startup"] == seen
    assert world.reconciler.fleets[KEY].observed.signals.startup_seconds == 40
    assert world.sample("startup_seconds") == 40
    world.restart_operator()
    await world.reconcile()
    assert world.reconciler.fleets[KEY].observed.signals.startup_seconds == 40
    assert world.status["startup"]["observedStarts"] == 1


async def test_what_pods_hold_is_priced(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document(resources={"gpu": {"count": 2}}, cost={"gpuHour": "1.5"})
    world.cluster.shown_pods = [world.engine.pod("a"), world.engine.pod("b", ready=False)]
    await world.reconcile()
    assert world.status["economics"] == {
        "basis": "Allocation",
        "currency": "USD",
        "gpus": 4,
        "costPerHour": "6.0000",
    }


async def test_advice_is_told_and_counted_once(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document(
        autoscaling={"minReplicas": 2, "maxReplicas": 4, "mode": "Advisory"}, paused=False
    )
    await world.reconcile()
    world.cluster.children["Deployment"]["spec"]["replicas"] = 1
    world.restart_operator()
    for _ in range(4):
        await world.reconcile(after=20)
    assert [event.reason for event in world.cluster.events] == ["ScaledUp"]
    assert world.cluster.events[0].message.startswith("advisory, not applied: ")
    advised = [record for record in world.status["decisions"] if record["action"] == "Up"]
    assert len(advised) == 1
    assert world.sample("decisions_total", loop="Replicas", action="Up", reason="MinReplicas") == 1
    assert (world.sample("recommended_replicas"), world.sample("desired_replicas")) == (2, 1)


async def test_holding_is_counted_when_it_begins(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document(autoscaling={"maxReplicas": 4}, concurrency={"mode": "Fixed"})
    for _ in range(4):
        await world.reconcile(after=20)
    counted = world.sample("decisions_total", loop="Replicas", action="Hold", reason="InsufficientData")
    assert counted == 1
    assert len(world.status["decisions"]) == 1
    world.restart_operator()
    await world.reconcile(after=20)
    assert len(world.status["decisions"]) == 1, "what the status says already is no news after a restart"


async def test_a_request_wakes_a_sleeping_fleet_at_the_next_look(
    world: TimedWorld, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = 0

    async def gateways(_: str) -> list[GatewayStats]:
        model = GatewayModelStats(fleet="uid-1", in_flight=0, held=waiting, requests_total=0, failed_total=0)
        return [GatewayStats(instance="one", time=0, models={"ride": model})]

    monkeypatch.setattr(world.scraper, "read_gateways", gateways)
    to_zero = {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"enabled": True, "idleSeconds": 60}}
    world.cluster.resource = document(autoscaling=to_zero)
    await world.reconcile()
    assert world.cluster.replicas == 0
    assert world.cluster.condition("Ready")["reason"] == "ScaledToZero"
    waiting = 1
    await world.reconcile(after=1)
    assert world.cluster.replicas == 1
    assert world.cluster.condition("Reconciling")["reason"] == "Activating"
    assert [event.reason for event in world.cluster.events] == ["Activated"]
    waiting = 0
    world.cluster.shown_pods = [started(world.engine, "a")]
    for _ in range(8):
        await world.reconcile(after=15)
    assert world.cluster.replicas == 0
    assert [event.reason for event in world.cluster.events] == ["Activated", "ScaledToZero"]
