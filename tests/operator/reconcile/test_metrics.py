"""What the operator exports of an LLMDeployment and of itself: begun, changed, and ended with its cause."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.operator.reconcile.test_field import KEY, TimedWorld, world

from paternoster_contract import __version__
from paternoster_operator.api.types.objective import Slo
from paternoster_operator.autoscaling.decision import LOOP_NAMES, Decision
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.metrics import OperatorMetrics, snake_case
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

__all__ = ["world"]  # a fixture
Document = Callable[..., dict[str, Any]]
STUCK = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


def about(metrics: OperatorMetrics) -> set[str]:
    """Names of the metrics that have a series of some LLMDeployment."""
    samples = (sample for family in metrics.registry.collect() for sample in family.samples)
    return {sample.name for sample in samples if "name" in sample.labels}


async def test_stalled_is_a_series_while_it_is_so(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document()
    world.cluster.shown_pods = [{"metadata": {"name": "a"}, "status": {"containerStatuses": [STUCK]}}]
    await world.reconcile()
    stalled = {"type": "Stalled", "status": "True"}
    assert world.sample("condition", reason="ImagePullFailed", **stalled) == 1
    assert world.sample("condition", reason="ImagePullFailed", type="Ready", status="False") == 1
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.sample("condition", reason="ImagePullFailed", **stalled) is None
    assert world.sample("condition", reason="MinimumReplicasAvailable", type="Ready", status="True") == 1


async def test_a_refused_spec_is_a_series_after_a_restart_too(world: TimedWorld, document: Document) -> None:
    refused = {"type": "Stalled", "status": "True", "reason": "InvalidSpec"}
    world.cluster.resource = document(replicas=-1)
    await world.reconcile()
    assert world.sample("condition", **refused) == 1
    world.cluster.resource = {**document(replicas=-1), "status": world.cluster.statuses[-1]}
    world.restart_operator()
    await world.reconcile()
    assert len(world.cluster.statuses) == 1, "nothing new is written"
    assert world.sample("condition", **refused) == 1


@pytest.mark.parametrize("replicas", [1, -1])
async def test_a_deleted_object_leaves_no_series(world: TimedWorld, document: Document, replicas: int) -> None:
    world.cluster.resource = document(replicas=replicas, slo={"ttftP95Milliseconds": 500})
    await world.reconcile()
    assert "paternoster_operator_condition" in about(world.metrics)
    world.cluster.resource = None
    await world.reconcile()
    assert about(world.metrics) == set()


async def test_who_acts_no_more_tells_of_no_fleet(world: TimedWorld, document: Document) -> None:
    """Or its last report would stand beside that of the next leader."""
    world.cluster.resource = document()
    operator = Operator(world.cluster, Settings())
    operator.start()
    await operator._reconciler.reconcile(KEY)
    assert "paternoster_operator_desired_replicas" in about(operator.metrics)
    await operator.pause()
    assert about(operator.metrics) == set()
    await operator.stop()


@pytest.mark.parametrize(
    ("milliseconds", "bucket"), [(500, "0.5"), (501, "0.75"), (1000, "1.0"), (2000, "2.5"), (3_000_000, "+Inf")]
)
async def test_a_limit_names_the_first_bucket_that_reaches_it(
    world: TimedWorld, document: Document, milliseconds: int, bucket: str
) -> None:
    world.cluster.resource = document(slo={"ttftP95Milliseconds": milliseconds})
    await world.reconcile()
    assert world.sample("slo_seconds", objective="ttft", bucket=bucket) == milliseconds / 1000
    assert world.sample("slo_seconds", objective="itl", bucket=bucket) is None


async def test_a_limit_that_moves_leaves_none_behind(world: TimedWorld, document: Document) -> None:
    world.cluster.resource = document(slo={"ttftP95Milliseconds": 500, "itlP95Milliseconds": 40})
    await world.reconcile()
    assert world.sample("slo_seconds", objective="itl", bucket="0.05") == 0.04
    world.cluster.resource = document(slo={"ttftP95Milliseconds": 750})
    await world.reconcile()
    assert world.sample("slo_seconds", objective="ttft", bucket="0.75") == 0.75
    assert world.sample("slo_seconds", objective="ttft", bucket="0.5") is None
    assert world.sample("slo_seconds", objective="itl", bucket="0.05") is None


def test_without_limits_there_is_no_series() -> None:
    metrics = OperatorMetrics()
    metrics.observe_slo(KEY, Slo())
    assert about(metrics) == set()


def test_the_process_and_its_build() -> None:
    value = OperatorMetrics().registry.get_sample_value
    assert value("paternoster_build_info", {"component": "operator", "version": __version__}) == 1
    assert (value("process_resident_memory_bytes") or 0) > 1_000_000
    assert (value("process_open_fds") or 0) > 2
    assert value("paternoster_operator_reconciles_total", {"outcome": "error"}) == 0


@pytest.mark.parametrize("wanted", [False, True])
async def test_engines_export_vllms_names_where_they_are_wanted(
    world: TimedWorld, document: Document, wanted: bool
) -> None:
    world.settings = Settings(engines=Installation(vllm_metrics=wanted))
    world.restart_operator()
    world.cluster.resource = document()
    await world.reconcile()
    (container,) = world.cluster.children["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert ("--vllm-metrics" in container["args"]) is wanted


def test_every_loop_has_its_gauges_before_it_decides() -> None:
    described = {family.name for family in OperatorMetrics().registry.collect()}
    for loop in LOOP_NAMES:
        assert {f"paternoster_operator_{kind}_{snake_case(loop)}" for kind in ("desired", "recommended")} <= described


LOAD = ("demand_requests", "capacity_requests", "generation_tokens_per_second", "preemption_ratio")


@pytest.mark.parametrize(
    ("signals", "has_series"),
    [(Signals(), True), (Signals(ready=2, stale_pods=("a",)), True), (Signals(ready=1, stale_pods=("a",)), False)],
    ids=["nothing serves", "one of two answers", "none answers"],
)
def test_a_load_that_no_engine_reports_has_no_series(signals: Signals, has_series: bool) -> None:
    metrics, decision = OperatorMetrics(), Decision({}, {})
    metrics.observe(Key("default", "a"), Signals(ready=1, running=3), decision, [], 1)
    metrics.observe(Key("default", "a"), signals, decision, [], 1)
    labels = {"namespace": "default", "name": "a"}
    found = {name: metrics.registry.get_sample_value(f"paternoster_operator_{name}", labels) for name in LOAD}
    assert {value is not None for value in found.values()} == {has_series}
    assert metrics.registry.get_sample_value("paternoster_operator_metrics_fresh", labels) == 0
