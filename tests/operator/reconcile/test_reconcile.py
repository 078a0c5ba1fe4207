"""The pipeline over a cluster in memory and engines on real sockets."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.operator.reconcile.world import KEY, PodEngine, World

from paternoster_contract.labels import DELETION_COST
from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.carry_out.applied_children import UNSEEN_SECONDS, WATCHED, spread_period
from paternoster_operator.cluster.port import Key
from paternoster_operator.names import directory
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

Document = Callable[..., dict[str, Any]]


async def test_children_are_applied_once_and_status_is_written_on_change_only(world: World, document: Document) -> None:
    world.cluster.resource = document(replicas=2)
    assert await world.reconcile() == Settings().look_seconds
    assert world.cluster.applies == ["Secret", "Service", "PodDisruptionBudget", "Deployment"]
    assert world.cluster.replicas == 2
    assert world.cluster.condition("Ready")["status"] == "Unknown"
    assert world.cluster.condition("Reconciling")["status"] == "True"
    for _ in range(3):
        await world.reconcile()
    assert len(world.cluster.applies) == 4
    assert len(world.cluster.statuses) == 1
    world.cluster.children["Deployment"].update(
        status={"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    )
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True"


async def test_each_version_of_a_manifest_is_parsed_once(
    world: World, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def record_parse(manifest: Mapping[str, Any], **named: Any) -> LLMDeployment:
        parsed.append(manifest["metadata"]["resourceVersion"])
        return parse_resource(manifest, **named)

    monkeypatch.setattr(directory, "parse_resource", record_parse)
    world.cluster.resource = document(replicas=2)
    for version in ("1", "2"):
        world.cluster.resource["metadata"]["resourceVersion"] = version
        await world.reconcile()
        await world.reconcile(after=30)
    assert parsed == ["1", "2"]


async def test_demand_brings_replicas_and_preemptions_cut_the_cap(world: World, document: Document) -> None:
    world.cluster.resource = document(
        autoscaling={"maxReplicas": 4},
        concurrency={"mode": "Auto", "objective": "PreemptionRate"},
        engine={"maxNumSeqs": 64},
    )
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.engine.numbers |= {
        "running": 50,
        "waiting": 90,
        "requests_finished_total": 40,
        "requests_preempted_total": 10,
    }
    await world.reconcile(after=30)
    assert world.cluster.replicas > 1
    assert world.engine.caps == [49], "50 ran, and no token was computed again"
    reasons = [event.reason for event in world.cluster.events]
    assert reasons == ["LiveCapLowered", "ScaledUp"]
    assert "10 of 40 requests preempted with 50 sequences = 25.0%, target 2.0%" in world.cluster.events[0].message
    decisions = world.cluster.statuses[-1]["decisions"]
    assert {record["loop"] for record in decisions if record["applied"]} == {"Replicas", "LiveCap"}
    await world.reconcile(after=15)
    assert world.engine.caps == [49], (
        "what was before the cut is no reason for another, and what it has need not be told again"
    )


async def test_preemptions_at_the_lowest_cap_are_one_warning(world: World, document: Document) -> None:
    world.cluster.resource = document(
        concurrency={"mode": "Auto", "objective": "PreemptionRate", "min": 8, "initial": 8},
        engine={"maxNumSeqs": 64},
    )
    world.engine.live_cap = 8
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.engine.numbers |= {"running": 8, "requests_finished_total": 40, "requests_preempted_total": 10}
    await world.reconcile(after=30)
    await world.reconcile(after=5)
    warnings = [event for event in world.cluster.events if event.type == "Warning"]
    assert [event.reason for event in warnings] == ["PreemptionAtLowestCap"]
    assert "25.0%, target 2.0%; 8 sequences are the fewest allowed" in warnings[0].message


async def test_a_restarted_engine_is_told_its_cap_again(world: World, document: Document) -> None:
    world.cluster.resource = document(concurrency={"initial": 9})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.engine.caps == [9]
    world.engine.live_cap, world.engine.numbers = 64, {"instance": "second"}
    await world.reconcile()
    assert world.engine.caps == [9, 9]


async def test_a_token_budget_is_told_to_engines_that_have_one(world: World, document: Document) -> None:
    """Steps of 20 ms and 0.3 ms a prompt token: one of 2,048 tokens keeps all requests waiting beyond 100 ms."""
    world.cluster.resource = document(concurrency={"mode": "Auto"}, slo={"itlP95Milliseconds": 100})
    world.cluster.shown_pods = [world.engine.pod("a")]
    world.engine.numbers |= {"max_batched_tokens": 2048, "token_budget": 2048, "running": 10}
    sums = StepSums()
    for turn in range(20):
        for tokens in (0, 0, 500, 1000, 2000):
            sums.add(StepWork(prefill_tokens=tokens, decode_sequences=10), 0.02 + 3e-4 * tokens)
        world.engine.numbers["step_sums"] = [value * (turn + 1) for value in sums.total]
        await world.reconcile(after=5)
    assert 224 <= world.engine.numbers["token_budget"] <= 288, "nine tenths of 100 ms less 20 ms, over 0.3 ms"
    status = world.cluster.statuses[-1]
    assert status["tokenBudget"]["target"] == world.engine.numbers["token_budget"]
    assert status["tokenBudget"]["capacity"] == 2048
    assert status["replicaModel"]["perPrefillTokenSeconds"] == "0.0003"
    assert "TokenBudgetLowered" in [event.reason for event in world.cluster.events]


async def test_an_engine_without_a_token_budget_is_told_none(world: World, document: Document) -> None:
    world.cluster.resource = document(
        concurrency={"initial": 9, "tokenBudget": {"mode": "Auto"}}, slo={"itlP95Milliseconds": 100}
    )
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.engine.caps == [9]
    assert "token_budget" not in world.engine.numbers
    assert "tokenBudget" not in world.cluster.statuses[-1]


async def test_silence_holds_everything(world: World, document: Document) -> None:
    world.cluster.resource = document(autoscaling={"minReplicas": 1, "maxReplicas": 4}, concurrency={"mode": "Auto"})
    world.cluster.shown_pods = [world.engine.pod("a")]
    world.engine.numbers |= {"running": 10, "waiting": 90}
    await world.reconcile()
    before = world.cluster.replicas
    silent = PodEngine(url="http://127.0.0.1:9")
    world.cluster.shown_pods = [world.engine.pod("a"), silent.pod("b")]
    for _ in range(60):
        await world.reconcile(after=20)
        assert world.cluster.replicas == before
    assert world.cluster.condition("MetricsFresh")["status"] == "False"
    assert "b" in world.cluster.condition("MetricsFresh")["message"]
    assert world.cluster.condition("ScalingActive")["reason"] == "MetricsStale"


async def test_at_the_ceiling_engines_bound_their_queue_and_those_of_earlier_releases_are_not_asked_to(
    world: World, document: Document
) -> None:
    world.cluster.resource = document(
        autoscaling={"minReplicas": 1, "maxReplicas": 1}, slo={"ttftP95Milliseconds": 3000}
    )
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    await world.reconcile(after=20)
    assert world.engine.caps == []
    world.engine.numbers["max_queue_milliseconds"] = 0
    await world.reconcile(after=20)
    assert world.engine.numbers["max_queue_milliseconds"] == 990
    assert "QueueBounded" in {event.reason for event in world.cluster.events}
    world.engine.numbers |= {"instance": "second", "max_queue_milliseconds": 0}
    await world.reconcile(after=20)
    assert world.engine.numbers["max_queue_milliseconds"] == 990, "a restarted engine begins without"


async def test_a_restarted_operator_changes_nothing_by_itself(world: World, document: Document) -> None:
    world.cluster.resource = document(autoscaling={"minReplicas": 1, "maxReplicas": 4}, concurrency={"mode": "Auto"})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.cluster.children["Deployment"]["spec"]["replicas"] = 3
    world.cluster.shown_pods = [world.engine.pod(name) for name in "abc"]
    world.engine.live_cap = 17
    world.restart_operator()
    await world.reconcile()
    assert world.cluster.replicas == 3
    assert world.engine.live_cap == 17
    assert world.reconciler.fleets[KEY].memory.states["LiveCap"].target == 17


async def test_an_invalid_spec_is_a_condition_and_nothing_is_applied(world: World, document: Document) -> None:
    world.cluster.resource = document(replicas=-1)
    assert await world.reconcile() is None
    assert world.cluster.applies == []
    assert world.cluster.condition("Stalled")["reason"] == "InvalidSpec"
    assert "spec.replicas: is -1" in world.cluster.condition("Ready")["message"]
    assert [event.reason for event in world.cluster.events] == ["InvalidSpec"]
    await world.reconcile()
    assert len(world.cluster.statuses) == 1


async def test_paused_writes_status_alone(world: World, document: Document) -> None:
    world.cluster.resource = document(paused=True, concurrency={"initial": 5})
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.cluster.applies == []
    assert world.engine.caps == []
    assert world.cluster.condition("ScalingActive")["reason"] == "Paused"


async def test_a_deleted_object_is_forgotten(world: World, document: Document) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    assert KEY in world.reconciler.fleets
    world.cluster.resource = None
    assert await world.reconcile() is None
    assert world.reconciler.fleets == {}


async def test_an_external_autoscaler_owns_replicas(world: World, document: Document) -> None:
    world.cluster.resource = document(replicas=3, autoscaling={"mode": "External", "maxReplicas": 9})
    world.cluster.shown_pods = [world.engine.pod("a")]
    world.engine.numbers |= {"running": 60, "waiting": 900}
    await world.reconcile()
    assert world.cluster.replicas == 3


async def routed(operator: Operator) -> list[str]:
    replicas = (await operator.routing_table()).models["lift/1"].replicas
    return [replica.name for replica in replicas if replica.ready]


async def test_a_deleting_pod_gets_no_more_requests_at_once(world: World, document: Document) -> None:
    world.cluster.resource = document(model={"source": "package://m", "servedName": "lift/1"})
    world.cluster.shown_pods = [world.engine.pod("a"), world.engine.pod("b"), world.engine.pod("c", ready=False)]
    operator = Operator(world.cluster, Settings())
    operator.start()
    await operator._reconciler.reconcile(KEY)
    assert await routed(operator) == ["lifts/a", "lifts/b"]
    world.cluster.shown_pods[0] = world.engine.pod("a", deletionTimestamp="now")
    assert await routed(operator) == ["lifts/b"]
    await operator.stop()


async def test_the_pod_with_the_fewest_requests_is_the_cheapest_to_take(world: World, document: Document) -> None:
    world.cluster.resource = document(replicas=2)
    world.cluster.shown_pods = [world.engine.pod("a"), world.engine.pod("b")]
    world.engine.numbers |= {"running": 3, "waiting": 2}
    await world.reconcile()
    assert world.cluster.annotations == {}, "nobody goes yet"
    world.cluster.resource = document(replicas=1)
    await world.reconcile()
    assert world.cluster.annotations == {pod: {DELETION_COST: "5"} for pod in "ab"}
    assert world.cluster.replicas == 1


async def test_a_change_shows_before_the_deployments_controller_has_seen_it(world: World, document: Document) -> None:
    world.cluster.resource = document(replicas=1)
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    world.cluster.children["Deployment"] |= {
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    }
    await world.reconcile()
    assert world.cluster.condition("Reconciling") == {}
    world.cluster.resource = {**document(replicas=1, engine={"image": "other:1"}), "status": world.cluster.statuses[-1]}
    await world.reconcile()
    assert world.cluster.condition("Reconciling")["reason"] == "Progressing"


async def test_what_stalls_a_fleet_is_an_event_once(world: World, document: Document) -> None:
    world.cluster.resource = document()
    stuck = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    world.cluster.shown_pods = [{"metadata": {"name": "a"}, "status": {"containerStatuses": [stuck]}}]
    for _ in range(3):
        await world.reconcile()
    (event,) = world.cluster.events
    assert (event.type, event.reason) == ("Warning", "ImagePullFailed")
    assert "no such image" in event.message
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.cluster.condition("Stalled") == {}


@pytest.mark.parametrize("kind", sorted(WATCHED - {"NetworkPolicy"}))
async def test_a_child_that_goes_before_any_look_found_it_is_made_again(
    world: World, document: Document, kind: str
) -> None:
    world.cluster.resource = document()
    await world.reconcile()
    del world.cluster.children[kind]
    await world.reconcile(after=UNSEEN_SECONDS / 2)
    assert kind not in world.cluster.children, "a watch may be late"
    await world.reconcile(after=UNSEEN_SECONDS / 2)
    assert kind in world.cluster.children


def test_fleets_are_not_all_applied_again_in_one_moment() -> None:
    periods = [spread_period(300.0, Key("lifts", f"ride-{number}")) for number in range(1000)]
    assert periods == [spread_period(300.0, Key("lifts", f"ride-{number}")) for number in range(1000)]
    assert all(240 <= period <= 300 for period in periods)
    for begin in range(240, 300, 6):
        assert 50 < sum(begin <= period < begin + 6 for period in periods) < 150


async def test_late_looks_are_counted(world: World) -> None:
    traffic = world.metrics.traffic
    for kind, seconds in (("scheduled", 2.5), ("scheduled", 2.6), ("requested", 9.0)):
        traffic.observe_wait(kind, seconds, period_seconds=5.0)
    sample = world.metrics.registry.get_sample_value
    assert sample("paternoster_operator_looks_late_total") == 1
    assert sample("paternoster_operator_queue_wait_seconds_sum", {"kind": "requested"}) == 9.0
