"""A plan is a pure function of manifest, observation and the last plan's memory."""

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, World

from paternoster_operator import reconcile
from paternoster_operator.plan.plan import Plan, make_plan

Document = Callable[..., dict[str, Any]]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with world.engine.listening():
        yield world
        await world.scraper.close()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Every plan that a reconciler makes, each made twice."""
    made: list[Plan] = []

    def make_twice(*inputs: Any) -> Plan:
        first = make_plan(*inputs)
        before = copy.deepcopy(first.memory.states), copy.deepcopy(inputs[2])
        assert make_plan(*inputs) == first, "a second plan of the same inputs"
        assert (first.memory.states, inputs[2]) == before, "planning changes no memory"
        made.append(first)
        return first

    monkeypatch.setattr(reconcile, "make_plan", make_twice)
    return made


async def test_equal_inputs_give_equal_plans(world: World, document: Document, plans: list[Plan]) -> None:
    world.cluster.resource = document(
        autoscaling={"maxReplicas": 4},
        concurrency={"mode": "Auto", "objective": "PreemptionRate"},
        engine={"maxNumSeqs": 64},
    )
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.engine.numbers |= {
        "running": 50, "waiting": 90, "requests_finished_total": 40, "requests_preempted_total": 10
    }  # fmt: skip
    await world.reconcile(after=30)
    last = plans[-1]
    assert last.changes is not None
    assert last.changes.children[-1]["spec"]["replicas"] == world.cluster.replicas > 1
    assert [call.pod for call in last.changes.calls] == ["a"]
    assert last.changes.live_caps == {"a": 49}
    assert [event.reason for event in last.status_events] == ["LiveCapLowered", "ScaledUp"]


async def test_what_may_not_be_changed_has_no_changes(world: World, document: Document, plans: list[Plan]) -> None:
    world.cluster.resource = document(paused=True)
    await world.reconcile()
    assert plans[-1].changes is None
    assert plans[-1].decision.targets["Replicas"] == 1


async def test_a_plan_that_is_printed_has_no_keys(world: World, document: Document, plans: list[Plan]) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    keys = plans[-1].observed.keys
    assert keys.admin
    assert not any(key in repr(plans[-1].observed) for key in (*keys.admin, *(keys.admin_roots or ())))


async def test_a_fleet_is_replaced_and_never_written_to(world: World, document: Document) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    fleet = world.reconciler.fleets[KEY]
    with pytest.raises(FrozenInstanceError):
        fleet.observed = None  # type: ignore[misc, assignment]
    await world.reconcile()
    assert world.reconciler.fleets[KEY] is not fleet


async def test_an_operator_that_acts_again_writes_the_load_at_once(world: World, document: Document) -> None:
    world.cluster.resource = document()
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.engine.numbers |= {"running": 5}
    await world.reconcile()
    num_written = len(world.cluster.statuses)
    world.reconciler.clear()
    world.engine.numbers |= {"running": 9}
    await world.reconcile(after=0.01)
    assert len(world.cluster.statuses) > num_written
    assert world.cluster.statuses[-1]["load"]["runningRequests"] == 9
