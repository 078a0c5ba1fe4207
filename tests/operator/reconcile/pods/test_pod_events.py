"""Events about pods are read where a pod's status leaves its cause open, seldom, and never at the cost of a look."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.operator.reconcile.world import World

from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.settings import Settings

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def creating(name: str, **status: Any) -> dict[str, Any]:
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}, "name": "engine", "ready": False}
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-11-21T11:59:00Z"},
        "spec": {"nodeName": "north", "containers": [{"name": "engine"}]},
        "status": {"phase": "Pending", "containerStatuses": [waiting], **status},
    }


def failed_mount(note: str) -> dict[str, Any]:
    return {"reason": "FailedMount", "note": note, "deprecatedCount": 3, "eventTime": "2026-11-21T11:59:30.0Z"}


def at_that_time(world: World) -> None:
    """Wall and monotonic clock go together."""
    began = world.now
    world.reconciler = world.new_reconciler(Settings(), wall=lambda: START + timedelta(seconds=world.now - began))


async def test_the_cause_is_told_and_gone_once_the_pod_gets_on(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    world.cluster.shown_pods = [creating("ride-1")]
    world.cluster.about["Pod", "ride-1"] = [failed_mount('configmap "absent" not found')]
    await world.reconcile()
    stalled = world.cluster.condition("Stalled")
    assert stalled["reason"] == "ConfigurationMissing"
    assert "make configmap absent in the namespace of the fleet" in stalled["message"]
    assert world.cluster.condition("Ready")["status"] == "False"
    assert [event.reason for event in world.cluster.events] == ["ConfigurationMissing"]
    world.cluster.shown_pods = [world.engine.pod("ride-1", ready=False)]
    await world.reconcile()
    assert world.cluster.condition("Stalled") == {}
    ready = world.cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ModelLoading")


async def test_a_pod_that_waits_long_is_asked_about_seldom(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    world.cluster.shown_pods = [creating(f"ride-{n}") for n in range(5)]
    for _ in range(12):
        await world.reconcile(after=5)
    first_minute = len(world.cluster.asked_about)
    assert {name for _, name in world.cluster.asked_about} == {"ride-0", "ride-1", "ride-2"}, "of a few pods only"
    assert 3 * 3 <= first_minute <= 3 * 12
    for _ in range(240):
        await world.reconcile(after=5)
    assert len(world.cluster.asked_about) - first_minute <= 3 * 30, "twenty minutes, once a minute in the end"


async def test_nothing_is_asked_about_a_fleet_that_serves(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    world.cluster.shown_pods = [world.engine.pod("ride-1")]
    for _ in range(5):
        await world.reconcile()
    assert world.cluster.asked_about == []


async def test_a_refusal_costs_the_cause_and_nothing_else(world: World, document: Any) -> None:
    """An installation whose roles are of an earlier release goes on."""
    at_that_time(world)
    world.cluster.resource = document()
    world.cluster.shown_pods = [creating("ride-1")]
    world.cluster.events_refused = ClusterError("GET events: HTTP 403: no", retriable=False)
    assert await world.reconcile() == Settings().look_seconds
    assert world.cluster.condition("Stalled") == {}
    ready = world.cluster.condition("Ready")
    assert (ready["reason"], "ride-1: its volumes, network and images" in ready["message"]) == (
        "ContainerCreating",
        True,
    )


async def test_the_events_of_a_claim_say_why_it_has_no_volume(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    unbound = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
    }
    pod = creating("ride-1", conditions=[unbound], containerStatuses=[])
    pod["spec"] = {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]}
    world.cluster.shown_pods = [pod]
    why = "no persistent volumes available for this claim and no storage class is set"
    world.cluster.about["PersistentVolumeClaim", "models"] = [{"reason": "FailedBinding", "note": why}]
    await world.reconcile()
    stalled = world.cluster.condition("Stalled")
    assert stalled["reason"] == "VolumeClaimUnbound"
    assert f"(models): {why}; see the events" in stalled["message"]


def evicted(name: str, since: str) -> dict[str, Any]:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory.", "startTime": since}
    return {"metadata": {"name": name, "creationTimestamp": since}, "spec": {"nodeName": "north"}, "status": status}


async def test_an_eviction_is_reported_once_and_no_replica(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    world.cluster.shown_pods = [world.engine.pod("ride-1")]
    await world.reconcile()
    recent = (START + timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.cluster.shown_pods = [evicted("ride-1", recent), world.engine.pod("ride-2")]
    for _ in range(3):
        await world.reconcile()
    reported = [event for event in world.cluster.events if event.reason == "ReplicaEvicted"]
    assert [event.message for event in reported] == ["ride-1: Evicted: The node was low on memory."]
    status = world.cluster.statuses[-1]
    assert (status["replicas"], status["readyReplicas"], status["pendingReplicas"]) == (1, 1, 0)
    # Another operator takes over: what happened a minute before may be news, an hour before it is not.
    world.now += 3600
    world.restart_operator()
    await world.reconcile()
    assert [event.reason for event in world.cluster.events].count("ReplicaEvicted") == 1


async def test_an_eviction_by_the_api_is_reported_while_the_pod_drains(world: World, document: Any) -> None:
    at_that_time(world)
    world.cluster.resource = document()
    pod = world.engine.pod("ride-1", deletionTimestamp="2026-11-21T12:00:05Z")
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API",
    }
    pod["status"]["conditions"].append({**target, "lastTransitionTime": "2026-11-21T12:00:03Z"})
    world.cluster.shown_pods = [pod]
    await world.reconcile()
    assert [(event.type, event.reason, event.message) for event in world.cluster.events] == [
        ("Warning", "ReplicaEvicted", "ride-1: EvictionByEvictionAPI: Eviction API")
    ]


async def test_pods_that_a_node_refuses_with_the_same_words_are_one_event(world: World, document: Any) -> None:
    """Each is replaced at once, and refused again."""
    at_that_time(world)
    world.cluster.resource = document()
    await world.reconcile()
    for n in range(20):
        pod = evicted(f"ride-{n}", (START + timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%SZ"))
        pod["status"] |= {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        world.cluster.shown_pods = [*world.cluster.shown_pods, pod]
        if n % 5 == 4:
            await world.reconcile()
    reported = [event.message for event in world.cluster.events if event.reason == "ReplicaFailed"]
    assert reported == ["ride-0: OutOfcpu: Node didn't have enough resource: cpu"]
    assert world.cluster.condition("Stalled")["reason"] == "PodRejected"
