"""Pods of a node whose kubelet is silent: as the node controller of Kubernetes 1.35 writes them."""

from typing import Any

from tests.operator.reconcile.world import KEY, World

from paternoster_operator.observed import Observed
from paternoster_operator.pods.reading import read_pod

SILENT = [
    {"type": "Initialized", "status": "True"},
    {"type": "ContainersReady", "status": "True"},
    {"type": "Ready", "status": "False"},
]


def silent_pod(world: World, name: str, conditions: Any = SILENT) -> dict[str, Any]:
    pod = world.engine.pod(name)
    return {
        **pod, "spec": {**pod["spec"], "nodeName": "node-1"}, "status": {**pod["status"], "conditions": conditions}
    }  # fmt: skip


async def make_fleet(world: World, document: Any) -> None:
    """Two replicas that serve, and half of what they sustain to do."""
    world.cluster.resource = document(autoscaling={"minReplicas": 1, "maxReplicas": 4}, engine={"maxNumSeqs": 64})
    world.cluster.shown_pods = [world.engine.pod("a")]
    world.engine.numbers["running"] = 40
    for _ in range(8):
        await world.reconcile()
    world.cluster.children["Deployment"]["status"] = {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 0
    }  # fmt: skip


async def test_a_replica_of_a_silent_node_serves_and_none_is_bought(world: World, document: Any) -> None:
    await make_fleet(world, document)
    world.cluster.shown_pods = [silent_pod(world, "a")]
    for _ in range(12):
        await world.reconcile()
    assert world.cluster.replicas == 1
    assert world.cluster.condition("Ready")["status"] == "True"
    reconciling = world.cluster.condition("Reconciling")
    assert reconciling["reason"] == "NodeNotReady"
    assert reconciling["message"].startswith("node node-1 reports nothing; requests go to a ")
    assert Observed.from_cluster(None, world.cluster.shown_pods).serving[0].name == "a", "the routing table has it"


async def test_an_engine_that_answers_no_more_either_is_not_counted(world: World, document: Any) -> None:
    """A node that is dead, and no late one: what is held for it is demand, as for any replica that is gone."""
    await make_fleet(world, document)
    dead = silent_pod(world, "a")
    dead["status"]["podIP"] = "127.0.0.2"
    dead["spec"]["containers"][0]["ports"] = [{"name": name, "containerPort": 1} for name in ("http", "admin")]
    world.cluster.shown_pods = [dead]
    await world.reconcile(after=1)
    assert world.reconciler.fleets[KEY].observed.signals.ready == 1, "one answer that is missed is no end"
    for _ in range(5):
        await world.reconcile()
    assert world.reconciler.fleets[KEY].observed.signals.ready == 0
    world.cluster.shown_pods = [silent_pod(world, "a")]
    await world.reconcile()
    assert world.reconciler.fleets[KEY].observed.signals.ready == 1


async def test_a_kubelet_that_takes_readiness_itself_is_not_silent(world: World) -> None:
    def is_silent(**changes: Any) -> bool:
        conditions = [{**each, **changes.get(each["type"], {})} for each in SILENT]
        return read_pod(silent_pod(world, "a", conditions)).node_silent

    assert is_silent()
    assert is_silent(Ready={"status": "Unknown"})
    assert not is_silent(Ready={"status": "True"})
    assert not is_silent(ContainersReady={"status": "False"})
    assert not is_silent(Ready={"reason": "ReadinessGatesNotReady"})
    pending = silent_pod(world, "a")
    pending["status"]["phase"] = "Pending"
    assert not read_pod(pending).node_silent
    deleted = silent_pod(world, "a")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not read_pod(deleted).serving
