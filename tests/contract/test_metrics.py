"""The list of metrics is well formed, so that every exporter and dashboard built from it is."""

import re

from paternoster_contract.metrics import ENGINE_METRICS


def test_names_are_unique_and_follow_the_conventions() -> None:
    names = [metric.name for metric in ENGINE_METRICS]
    aliases = [metric.vllm for metric in ENGINE_METRICS if metric.vllm]
    assert len(set(names)) == len(names)
    assert len(set(aliases)) == len(aliases)
    assert all(re.fullmatch(r"paternoster_engine_[a-z0-9_]+", name) for name in names)
    assert all(alias.startswith("vllm:") for alias in aliases)
    assert not any(name.endswith("_total") for name in names), "prometheus-client adds _total to counters"


def test_buckets_belong_to_histograms_and_rise() -> None:
    for metric in ENGINE_METRICS:
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name


def test_latency_histograms_see_milliseconds() -> None:
    """A small model answers in milliseconds; edges that begin at 0.3 s would show nothing."""
    for metric in ENGINE_METRICS:
        if metric.name.endswith("_seconds") and metric.kind == "histogram":
            assert metric.buckets[0] <= 0.005, metric.name
