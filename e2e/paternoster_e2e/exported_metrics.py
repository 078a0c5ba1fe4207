"""Every series that engine, operator and gateway export, and whether a query names what is among them.

A query for a metric that no component exports is no error anywhere: the panel stays empty and the alert never fires.
"""

import re
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics import MetricWrapperBase

from paternoster_contract.metrics import ENGINE_METRICS, MODEL_LABEL
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_operator.metrics import OperatorMetrics

MetricLabels = dict[str, set[str]]
"""Name of a series -> its labels."""

TARGET = {"namespace", "pod"}
"""Labels that every target gets from a PodMonitor; engines get ``llmdeployment``, too, and operators ``shard``."""
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
NAME = re.compile(r"\b(?:paternoster|vllm|process|python)[_:][\w:]*")


def exported() -> MetricLabels:
    exported_labels = {
        metric.name + suffix: {MODEL_LABEL, "llmdeployment", *metric.labels, *TARGET}
        for metric in ENGINE_METRICS
        for suffix in SUFFIXES[metric.kind]
    }
    for registry, added in ((OperatorMetrics().registry, {"shard"}), (GatewayMetrics().registry, set[str]())):
        for name, own in _registered(registry):
            exported_labels[name] = {*own, *added, *TARGET}
    for name, own in _registered(process_registry()):
        exported_labels[name] = {"llmdeployment", *own, *TARGET}
    return exported_labels | {name: {*own, "le"} for name, own in exported_labels.items() if name.endswith("_bucket")}


def recorded(rules: dict[str, Any], exported_labels: MetricLabels) -> MetricLabels:
    """Add what ``rules`` record to ``exported_labels``; asserts that every rule reads exported or recorded metrics."""
    exported_labels = dict(exported_labels)
    for group in rules["groups"]:
        for rule in group["rules"]:
            had = check_query(rule["expr"], exported_labels)
            if "record" in rule:
                by = re.search(r"\bby \(([^)]*)\)", rule["expr"])
                grouped_by = {label.strip() for label in by[1].split(",")} if by else set()
                exported_labels[rule["record"]] = grouped_by | set(rule.get("labels", ()))
            labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values())))
            assert labels <= had, rule["alert"]
    return exported_labels


def _registered(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    # No public way gives the labels of a metric that has no series yet.
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase) and collector._labelnames:
            (family,) = collector.describe()
            for suffix in SUFFIXES[family.type]:
                yield family.name + suffix, set(collector._labelnames)
        else:
            for family in collector.collect():
                for sample in family.samples:
                    yield sample.name, set(sample.labels)
                if not family.samples and isinstance(family, CounterMetricFamily):
                    yield f"{family.name}_total", set(family._labelnames)


def check_query(expression: str, exported_labels: MetricLabels) -> set[str]:
    """Assert that every metric exists with the labels that its matchers select; returns the labels of all metrics."""
    names = NAME.findall(expression)
    assert names, expression
    assert set(names) <= exported_labels.keys(), f"unknown: {sorted(set(names) - exported_labels.keys())}"
    for name, matchers in re.findall(rf"({NAME.pattern})\{{([^}}]*)\}}", expression):
        selected = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert selected <= exported_labels[name], f"{name} has no label {sorted(selected - exported_labels[name])}"
    made = set(re.findall(r'"(\w+)", "\$1"', expression))  # by label_replace
    had = set.union(made, *(exported_labels[name] for name in names))
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|on|group_left|group_right) \(([^)]*)\)", expression)
        for label in labels.split(",")
        if label.strip()
    }
    assert grouped <= had, f"no metric has a label {sorted(grouped - had)}: {expression}"
    return had
