"""An engine whose numbers cannot be: reported in a condition, once in an event, and in a metric."""

from collections.abc import Callable
from typing import Any

from prometheus_client import generate_latest
from tests.operator.reconcile.world import KEY, World


async def test_a_refusal_is_counted_and_told(world: World, document: Callable[..., dict[str, Any]]) -> None:
    world.cluster.resource = document(replicas=1)
    world.cluster.shown_pods = [world.engine.pod("a")]
    await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
    world.engine.numbers |= {"waiting": 10**6}
    for _ in range(6):
        await world.reconcile()
    condition = world.cluster.condition("MetricsFresh")
    assert (condition["status"], condition["reason"]) == ("False", "ReportsRefused")
    assert "a: waiting is 1000000: must be at most" in condition["message"]
    assert [event.reason for event in world.cluster.events].count("ReportsRefused") == 1
    assert world.reconciler.fleets[KEY].observed.signals.waiting == 0
    text = generate_latest(world.metrics.registry).decode()
    assert 'paternoster_operator_reports_refused_total{name="ride",namespace="lifts",reason="waiting"} 6.0' in text
    world.engine.numbers |= {"waiting": 0}
    await world.reconcile()
    assert world.cluster.condition("MetricsFresh")["status"] == "True"
