"""Series of the operator are shared out by namespace: ten thousand fleets of one take none of another's."""

import pytest

from paternoster_operator import metrics as operator_metrics
from paternoster_operator.cluster.port import Key
from paternoster_operator.metrics import OperatorMetrics


def series(metrics: OperatorMetrics) -> set[Key]:
    samples = (sample.labels for family in metrics.registry.collect() for sample in family.samples)
    return {Key(labels["namespace"], labels["name"]) for labels in samples if "namespace" in labels}


def test_each_namespace_has_its_share_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_metrics, "MOST_FLEETS_WITH_SERIES", 10)
    metrics = OperatorMetrics()
    ready = [{"type": "Ready", "status": "True", "reason": "Ready"}]
    hostile = [Key("hostile", f"h{i}") for i in range(50)]
    others = [Key(f"team-{i}", "m") for i in range(4)]
    for key in (*hostile, *others, *hostile):
        metrics.observe_conditions(key, ready)
        metrics.count_failure(key, "ClusterRefused")
        metrics.count_refused_report(key, "running")
    assert len(series(metrics)) == 10
    assert series(metrics) >= {*others}
    without = "paternoster_operator_fleets_without_series"
    assert metrics.registry.get_sample_value(without) == 44
    for key in hostile:
        metrics.remove_series(key)
    assert series(metrics) == {*others}
    assert metrics.registry.get_sample_value(without) == 0
