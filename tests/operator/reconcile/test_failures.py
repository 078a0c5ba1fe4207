"""What keeps a look from doing all: a condition with a reason, an event and a metric, and never silence."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, World

from paternoster_contract.labels import DRAIN
from paternoster_contract.stats import EngineState, GatewayModelStats, GatewayStats
from paternoster_operator.api.stored import REMOVED_FIELDS, RemovedField
from paternoster_operator.cluster.port import ClusterError, ForeignObject, NamespaceEnding, WatchFailed, WatchFault
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings


def failures(world: World, reason: str) -> float | None:
    labels = {"namespace": KEY.namespace, "name": KEY.name, "reason": reason}
    return world.metrics.registry.get_sample_value("paternoster_operator_reconcile_failures_total", labels)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (ForeignObject(["Service lifts/ride, controlled by nothing,"], "LLMDeployment ride"), "ChildNotOwned"),
        (ClusterError("PATCH /x: HTTP 422: no", retriable=False), "ClusterRefused"),
    ],
)
async def test_a_refused_child_stalls_the_fleet_and_heals(
    world: World, document: Any, refusal: ClusterError, reason: str
) -> None:
    world.cluster.resource = document()
    world.cluster.refusals["Service"] = refusal
    for _ in range(2):
        assert await world.reconcile() == Settings().look_seconds
    stalled = world.cluster.condition("Stalled")
    assert (stalled["reason"], stalled["message"]) == (reason, str(refusal))
    assert world.cluster.condition("Ready")["status"] == "False"
    assert [(event.type, event.reason) for event in world.cluster.events] == [("Warning", reason)]
    assert failures(world, reason) == 2
    assert "Deployment" not in world.cluster.applies
    world.cluster.refusals.clear()
    await world.reconcile()
    assert world.cluster.condition("Stalled") == {}
    assert "Deployment" in world.cluster.applies


async def test_a_namespace_that_ends_is_no_fault_of_its_fleet(
    world: World, document: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.resource = document()
    world.cluster.refusals["Service"] = NamespaceEnding("PATCH /x: HTTP 403: lifts is being terminated")
    operator = Operator(world.cluster, Settings())
    operator.start()
    operator.enqueue_key(KEY)
    while "Service" not in world.cluster.applies:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await operator.stop()
    assert all(record.levelname not in ("WARNING", "ERROR") for record in caplog.records)
    assert world.cluster.events == []
    assert [status for status in world.cluster.statuses if "conditions" in status] == []


async def test_objects_of_another_owner_are_named_at_once(world: World, document: Any) -> None:
    """They stay after ``kubectl delete --cascade=orphan``, when the same manifest is applied again."""
    world.cluster.resource = document()
    for kind in ("Secret", "Service", "Deployment"):
        found = f"{kind} lifts/ride, controlled by nothing,"
        world.cluster.refusals[kind] = ForeignObject([found], "LLMDeployment ride")
    await world.reconcile()
    assert world.cluster.condition("Stalled")["message"] == (
        "Secret lifts/ride, controlled by nothing, and Service lifts/ride, controlled by nothing, and Deployment "
        "lifts/ride, controlled by nothing, are there already: delete or rename them, or rename LLMDeployment ride"
    )
    assert world.cluster.children == {}, "no child is made beside them"


async def test_a_fleet_that_serves_goes_on_while_a_child_is_refused(world: World, document: Any) -> None:
    world.cluster.resource = document()
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.cluster.resource = {**document(replicas=2), "status": world.cluster.statuses[-1]}
    world.cluster.refusals["Deployment"] = ClusterError("HTTP 403: quota", retriable=False)
    await world.reconcile()
    assert world.cluster.condition("Stalled")["reason"] == "ClusterRefused"
    assert world.cluster.condition("Ready")["status"] == "True"
    assert world.cluster.statuses[-1]["readyReplicas"] == 1


async def test_a_cluster_that_does_not_answer_is_met_again_and_told(world: World, document: Any) -> None:
    world.cluster.resource = document()
    world.cluster.refusals["Service"] = ClusterError("PATCH /x: HTTP 503: away")
    for _ in range(2):
        with pytest.raises(ClusterError):
            await world.reconcile()
    assert world.cluster.condition("Stalled") == {}
    moving = world.cluster.condition("Reconciling")
    assert (moving["reason"], moving["message"]) == ("ClusterUnavailable", "PATCH /x: HTTP 503: away")
    assert [event.reason for event in world.cluster.events] == ["ClusterUnavailable"]
    assert len(world.cluster.statuses) == 1, "the same words are not written twice"
    world.cluster.refusals.clear()
    await world.reconcile()
    assert world.cluster.condition("Reconciling")["reason"] != "ClusterUnavailable"


async def test_a_fault_of_the_operator_is_told_too(
    world: World, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.resource = document()

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr("paternoster_operator.plan.plan.decide_loops", broken)
    with pytest.raises(ZeroDivisionError):
        await world.reconcile()
    stalled = world.cluster.condition("Stalled")
    assert (stalled["reason"], stalled["message"]) == ("ReconcileFailed", "ZeroDivisionError: no such number")
    assert world.cluster.condition("Ready")["status"] == "Unknown"
    assert [event.reason for event in world.cluster.events] == ["ReconcileFailed"]
    assert failures(world, "ReconcileFailed") == 1


async def test_a_missing_key_is_told_while_everything_else_is_done(world: World, document: Any) -> None:
    world.cluster.resource = document(security={"apiKeySecretRef": {"name": "clients"}})
    await world.reconcile()
    assert world.cluster.condition("Stalled")["reason"] == "ConfigurationMissing"
    assert world.cluster.replicas == 1


@pytest.mark.parametrize("waits", [False, True], ids=["of another namespace", "of its own namespace"])
async def test_a_taken_name_stalls_the_newcomer(
    world: World, document: Any, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """One whose own namespace has the name starts meanwhile, and ``UpToDate`` says that it could serve."""
    world.cluster.resource = document()

    async def claim_names(_: object) -> tuple[tuple[str, ...], tuple[str, str]]:
        return (), ("ServedNameTaken", "the served name ride belongs to LLMDeployment a/b")

    monkeypatch.setattr(world.reconciler._directory, "claim_names", claim_names)
    monkeypatch.setattr(world.reconciler._directory, "may_start_unnamed", lambda _: waits)
    await world.reconcile()
    assert ("Deployment" in world.cluster.applies) is waits
    if waits:
        status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
        world.cluster.children["Deployment"]["status"] = status
        world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.cluster.condition("UpToDate")["status"] == str(waits)
    assert world.cluster.condition("Stalled")["reason"] == "ServedNameTaken"
    assert world.cluster.condition("Ready")["status"] == "False"
    assert world.cluster.statuses[-1]["servedModel"] == ""


async def test_children_that_vanish_or_are_edited_are_sent_again(world: World, document: Any) -> None:
    world.cluster.resource = document()
    for _ in range(2):
        await world.reconcile()
    before = len(world.cluster.applies)
    del world.cluster.children["PodDisruptionBudget"]
    await world.reconcile()
    assert world.cluster.applies[before:] == ["PodDisruptionBudget"]
    world.cluster.children["Service"]["metadata"]["generation"] += 1
    await world.reconcile()
    assert world.cluster.applies[before:] == ["PodDisruptionBudget", "Service"]


async def test_a_pod_that_cannot_start_gets_its_secret_again(world: World, document: Any) -> None:
    """No watch reports Secrets."""
    world.cluster.resource = document()
    await world.reconcile()
    world.cluster.shown_pods = [{"metadata": {"name": "a"}, "status": {"phase": "Pending"}}]
    before = len(world.cluster.applies)
    await world.reconcile()
    assert world.cluster.applies[before:] == ["Secret"]


async def test_an_engine_that_nobody_wants_drained_admits_again(world: World, document: Any) -> None:
    world.cluster.resource = document()
    world.engine.numbers["state"] = EngineState.DRAINING
    world.cluster.shown_pods = [world.engine.pod("a", ready=False)]
    await world.reconcile()
    assert world.engine.numbers["state"] == EngineState.READY
    world.cluster.shown_pods = [world.engine.pod("a", annotations={DRAIN: "true"})]
    await world.reconcile()
    assert world.engine.numbers["state"] == EngineState.DRAINING
    calls = len(world.engine.admin_keys)
    await world.reconcile()
    assert len(world.engine.admin_keys) == calls, "what it has need not be told again"
    world.cluster.shown_pods = [world.engine.pod("a", deletionTimestamp="now")]
    await world.reconcile()
    assert len(world.engine.admin_keys) == calls, "one that ends is let end"


async def test_a_fleet_is_ready_once_every_gateway_knows_it(
    world: World, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids: list[str] = []

    async def gateways(_: str) -> list[GatewayStats]:
        numbers = {"in_flight": 0, "held": 0, "requests_total": 0, "failed_total": 0}
        return [
            GatewayStats(instance=name, time=0, models={"ride": GatewayModelStats(fleet=fleet, **numbers)})
            for name, fleet in (("one", "uid-1"), ("two", uids[-1] if uids else ""))
        ]

    monkeypatch.setattr(world.scraper, "read_gateways", gateways)
    world.reconciler = world.new_reconciler(Settings(gateway_url="http://gateways"))
    to_zero = {"minReplicas": 0, "maxReplicas": 1, "scaleToZero": {"enabled": True}}
    world.cluster.resource = document(autoscaling=to_zero)
    for fleet in ("", "another"):
        uids.append(fleet)
        assert await world.reconcile() == 1.0, "it looks again soon"
        ready, routed = world.cluster.condition("Ready"), world.cluster.condition("Routed")
        assert (ready["status"], ready["reason"]) == ("Unknown", "WaitingForGateways")
        assert (routed["status"], routed["message"]) == ("False", "1 of 2 gateways know ride")
        assert world.cluster.condition("Reconciling")["status"] == "True"
    uids.append("uid-1")
    assert await world.reconcile() == Settings().look_seconds
    assert world.cluster.condition("Ready")["reason"] == "ScaledToZero"
    assert world.cluster.condition("Routed")["status"] == "True"


async def test_a_stored_value_that_was_removed_since_is_served_with_its_successor(world: World, document: Any) -> None:
    world.cluster.resource = document(engine={"order": "deadline"})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    args = world.cluster.children["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--order") + 1] == "fcfs"
    assert world.cluster.condition("Ready")["status"] == "True"
    assert world.cluster.condition("Stalled") == {}
    condition = world.cluster.condition("RemovedFields")
    assert condition["message"] == "spec.engine.order is 'deadline', which was removed: 'fcfs' takes its place"


@pytest.mark.parametrize(("path", "removed"), REMOVED_FIELDS.items())
async def test_a_stored_field_that_was_removed_since_is_ignored_and_named(
    world: World, document: Any, path: tuple[str, ...], removed: RemovedField
) -> None:
    spec: Any = 3
    for name in reversed(path[1:]):
        spec = {name: spec}
    world.cluster.resource = document(**spec)
    world.cluster.shown_pods = [world.engine.pod("a")]
    for _ in range(2):
        await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True"
    condition = world.cluster.condition("RemovedFields")
    assert (condition["status"], condition["reason"]) == ("True", "FieldsIgnored")
    named = f"{'.'.join(path)} is 3, but was removed: {removed.successor}; leave it out"
    assert condition["message"] == named
    assert [event.message for event in world.cluster.events if event.reason == "FieldsIgnored"] == [named], "once"
    world.cluster.resource = document()
    await world.reconcile()
    assert world.cluster.condition("RemovedFields") == {}


@pytest.fixture
def losing_status(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Switch that makes writes of the fleet's status fail."""
    write, is_away = world.cluster.write_status, [False]

    async def write_status(key: Any, status: Any) -> None:
        if is_away[0]:
            raise ClusterError("PATCH /status: HTTP 503: away")
        await write(key, status)

    monkeypatch.setattr(world.cluster, "write_status", write_status)
    return lambda away: is_away.__setitem__(0, away)


async def preempt(world: World, number: int) -> None:
    """The look with that ``number`` at an engine most of whose requests are preempted."""
    counts = {"requests_finished_total": 40 * number + 40, "requests_preempted_total": 30 * number}
    world.engine.numbers |= {"running": 60, "waiting": 90, **counts}
    await world.reconcile(after=30)


async def test_the_event_of_a_floor_is_recorded_once_the_status_can_be_written(
    world: World, document: Any, losing_status: Callable[[bool], None]
) -> None:
    cap = {"mode": "Auto", "objective": "PreemptionRate", "min": 64}
    world.cluster.resource = document(concurrency=cap, engine={"maxNumSeqs": 64})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await preempt(world, 0)
    losing_status(True)
    with pytest.raises(ClusterError):
        await preempt(world, 1)
    losing_status(False)
    for number in (2, 3):
        await preempt(world, number)
        assert [event.reason for event in world.cluster.events].count("PreemptionAtLowestCap") == 1


async def test_calls_that_set_a_cap_count_though_the_status_is_not_written(
    world: World, document: Any, losing_status: Callable[[bool], None]
) -> None:
    cap = {"mode": "Auto", "objective": "PreemptionRate", "initial": 32}
    world.cluster.resource = document(concurrency=cap, engine={"maxNumSeqs": 64})
    world.cluster.shown_pods = [world.engine.pod("a")]
    losing_status(True)
    for number in range(8):
        world.engine.numbers["live_cap"] = 64  # it begins with that, whatever a call sets
        with pytest.raises(ClusterError):
            await preempt(world, number)
        calls = world.reconciler.fleets[KEY].observed.cap_faults.calls
        assert sum(count for _, count in calls.values()) == len(world.engine.patches), "each call set the same cap"
    assert len(world.engine.patches) > 1


async def test_a_watch_that_was_never_whole_comes_before_an_unusable_manifest(world: World, document: Any) -> None:
    """It may be another one meanwhile."""
    world.cluster.resource = document(replicas=-1)
    world.cluster.watch_fault = WatchFault("pods: HTTP 403", listed=False)
    with pytest.raises(WatchFailed):
        await world.reconcile()
    assert world.cluster.condition("Stalled") == {}
    world.cluster.watch_fault = None
    await world.reconcile()
    assert world.cluster.condition("Stalled")["reason"] == "InvalidSpec"
