"""A fleet whose manifest names another engine: replicas of either are read and steered as what they are."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.operator.reconcile.world import VLLM, World

from paternoster_contract.labels import ENGINE_TYPE
from paternoster_e2e.fakes.engine import FakeEngine

Document = Callable[..., dict[str, Any]]


@pytest.fixture
async def vllm() -> AsyncIterator[FakeEngine]:
    """One that runs beside the world's engine, which is ours."""
    async with FakeEngine(answers={**VLLM}).listening() as engine:
        yield engine


def pods(world: World, vllm: FakeEngine) -> list[Any]:
    ours = world.engine.pod("ours")
    theirs = world.engine.pod("theirs", annotations={ENGINE_TYPE: "VLLM"})
    port = int(vllm.url.rpartition(":")[2])
    theirs["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": port}]
    return [ours, theirs]


def show(world: World, document: Document, type_: str) -> None:
    """What the manifest names now, beside the status that is there."""
    runtime = {} if type_ == "Paternoster" else {"runtime": {"type": type_, "image": "vllm:1"}}
    engine, status = {"maxNumSeqs": 16, **runtime}, (world.cluster.resource or {}).get("status", {})
    made = document(model={"source": "file:///m"}, engine=engine, concurrency={"initial": 5})
    world.cluster.resource = {**made, "status": status}


@pytest.mark.parametrize("there", ["Paternoster", "VLLM"])
async def test_both_engines_of_a_rollout_are_read_and_steered(
    world: World, vllm: FakeEngine, document: Document, there: str
) -> None:
    show(world, document, there)
    world.cluster.shown_pods = pods(world, vllm)
    for _ in range(2):
        await world.reconcile()
    (fleet,) = world.reconciler.fleets.values()
    assert fleet.observed.engines.keys() == {"ours", "theirs"}
    assert world.engine.caps[-1] == 5
    assert vllm.patches[-1]["live_cap"] == 5
    assert "gatewayCap" not in world.cluster.statuses[-1], "an older replica of another engine is no fault of a new one"
    assert {event.reason for event in world.cluster.events} <= {"LiveCapLowered"}


async def test_an_event_names_both_engines_once(world: World, vllm: FakeEngine, document: Document) -> None:
    show(world, document, "VLLM")
    world.cluster.shown_pods = pods(world, vllm)
    await world.reconcile()
    for _ in range(2):
        show(world, document, "Paternoster")
        await world.reconcile()
    (message,) = [event.message for event in world.cluster.events if event.reason == "EngineChanged"]
    assert (
        message == "engine.runtime.type VLLM->Paternoster: replicas of VLLM serve until those of Paternoster are ready"
    )
    assert world.cluster.statuses[-1]["engine"]["type"] == "Paternoster"
