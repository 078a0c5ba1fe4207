"""Fields that others set in children: removed a few times, and then left and named."""

from typing import Any

from tests.operator.reconcile.world import World

from paternoster_operator.carry_out.applied_children import MOST_REMOVALS

PAUSED = {"f:spec": {"f:paused": {}}}


def named(world: World) -> list[str]:
    return [event.message for event in world.cluster.events if event.reason == "ForeignFieldsRemoved"]


async def test_an_edit_is_removed_and_named_once(world: World, document: Any) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    world.cluster.edit_child("Deployment", PAUSED)
    for _ in range(3):
        await world.reconcile()
    assert named(world) == ["removed from Deployment ride: spec.paused (set by kubectl)"]
    assert world.cluster.condition("Contested") == {}
    assert world.cluster.adoptions == ["Deployment"]


async def test_who_sets_it_each_time_has_it_left_until_all_is_sent_again(world: World, document: Any) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    for _ in range(MOST_REMOVALS + 3):
        world.cluster.edit_child("Deployment", PAUSED)
        await world.reconcile()
    assert len(named(world)) == MOST_REMOVALS
    contested = world.cluster.condition("Contested")
    assert contested["reason"] == "ForeignFields"
    assert contested["message"].startswith("Deployment ride: spec.paused (set by kubectl): ")
    await world.reconcile(after=400)
    assert len(named(world)) == MOST_REMOVALS + 1
    assert world.cluster.condition("Contested") == {}


async def test_one_that_another_writer_delays_is_removed_at_the_next_look(world: World, document: Any) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    adopt = world.cluster.adopt_foreign_fields

    async def conflict(_: Any) -> bool:
        return False

    world.cluster.edit_child("Service", {"f:spec": {"f:sessionAffinity": {}}})
    world.cluster.adopt_foreign_fields = conflict  # type: ignore[method-assign]
    await world.reconcile()
    assert named(world) == []
    world.cluster.adopt_foreign_fields = adopt  # type: ignore[method-assign]
    await world.reconcile()
    assert named(world) == ["removed from Service ride: spec.sessionAffinity (set by kubectl)"]


async def test_a_paused_fleet_is_left_as_it_is_and_has_them_named(world: World, document: Any) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    world.cluster.resource = {**document(paused=True), "status": world.cluster.resource["status"]}
    world.cluster.edit_child("Deployment", PAUSED)
    await world.reconcile()
    assert world.cluster.adoptions == []
    assert "leaves them until spec.paused is false" in world.cluster.condition("Contested")["message"]
