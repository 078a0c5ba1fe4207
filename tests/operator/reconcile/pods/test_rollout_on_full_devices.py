"""A rollout that waits for the device of the replica that it is to replace goes on without surge, and says so."""

from typing import Any

import pytest
from tests.operator.reconcile.world import World

DEVICE = "nvidia.com/gpu"
REQUESTS = {"requests": {DEVICE: "1"}}


def full(world: World) -> None:
    """The old replica serves on the one device, and the pod of the new template waits for it."""
    old = world.engine.pod("ride-a-1", labels={"pod-template-hash": "a"}, creationTimestamp="2026-11-21T11:00:00Z")
    new = world.engine.pod("ride-b-1", labels={"pod-template-hash": "b"}, creationTimestamp="2026-11-21T12:00:00Z")
    for pod in (old, new):
        pod["spec"]["containers"][0]["resources"] = REQUESTS
    message = f"0/1 nodes are available: 1 Insufficient {DEVICE}."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    new["status"] = {"phase": "Pending", "conditions": [condition]}
    world.cluster.shown_pods = [old, new]
    generation = world.cluster.children["Deployment"]["metadata"]["generation"]
    status = {"observedGeneration": generation, "replicas": 2, "updatedReplicas": 1}
    world.cluster.children["Deployment"]["status"] = status


def rolling_update(world: World) -> tuple[int, int]:
    found = world.cluster.children["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    return found["maxSurge"], found["maxUnavailable"]


async def test_it_goes_on_without_surge(world: World, document: Any) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    assert rolling_update(world) == (1, 0)
    full(world)
    for _ in range(3):
        await world.reconcile()
    assert rolling_update(world) == (0, 1)
    warnings = [event for event in world.cluster.events if event.reason == "RolloutWithoutSurge"]
    why = f"a new replica needs {DEVICE}, which ride-a-1 holds"
    assert [event.message for event in warnings] == [f"maxSurge 1->0, old replicas end before new ones start: {why}"]
    assert "InsufficientGPUs" not in [event.reason for event in world.cluster.events]
    assert world.cluster.condition("Stalled") == {}
    assert world.cluster.condition("Reconciling")["reason"] == "RollingOut"


@pytest.mark.parametrize("given", [{"rollout": {"maxSurge": 1}}, {"paused": True}], ids=["asked for", "paused"])
async def test_what_the_manifest_says_is_left(world: World, document: Any, given: dict[str, Any]) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    world.cluster.resource = document(**given)
    full(world)
    await world.reconcile()
    assert rolling_update(world) == (1, 0)
    assert world.cluster.condition("Stalled")["reason"] == "InsufficientGPUs"
    assert "rollout.maxSurge: 0" in world.cluster.condition("Stalled")["message"]
    assert world.cluster.condition("Ready")["status"] == "True"
