"""Every series that engine, operator and gateway export, and whether a query names what is among them.

A query for a metric that nobody exports is no error anywhere: the panel stays empty and the alert never fires.
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

Known = dict[str, set[str]]
"""Name of a series -> its labels."""

TARGET = {"namespace", "pod"}
"""Labels that every target gets from a PodMonitor; engines get ``llmdeployment``, too."""
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
NAME = re.compile(r"\b(?:paternoster|vllm|process|python)[_:][\w:]*")


def exported() -> Known:
    known = {
        metric.name + suffix: {MODEL_LABEL, "llmdeployment", *metric.labels, *TARGET}
        for metric in ENGINE_METRICS
        for suffix in SUFFIXES[metric.kind]
    }
    for registry in (OperatorMetrics().registry, GatewayMetrics().registry):
        for name, own in _registered(registry):
            known[name] = {*own, *TARGET}
    for name, own in _registered(process_registry()):
        known[name] = {"llmdeployment", *own, *TARGET}
    return known | {name: {*own, "le"} for name, own in known.items() if name.endswith("_bucket")}


def recorded(rules: dict[str, Any], known: Known) -> Known:
    """``known`` and what the rules record; asserts that every rule names what is known, or recorded before it."""
    known = dict(known)
    for group in rules["groups"]:
        for rule in group["rules"]:
            had = check_query(rule["expr"], known)
            if "record" in rule:
                by = re.search(r"\bby \(([^)]*)\)", rule["expr"])
                kept = {label.strip() for label in by[1].split(",")} if by else set()
                known[rule["record"]] = kept | set(rule.get("labels", ()))
            said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values())))
            assert said <= had, rule["alert"]
    return known


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


def check_query(expression: str, known: Known) -> set[str]:
    """Assert that every metric exists and has the labels asked for; returns all labels of the query's metrics."""
    names = NAME.findall(expression)
    assert names, expression
    assert set(names) <= known.keys(), f"unknown: {sorted(set(names) - known.keys())}"
    for name, matchers in re.findall(rf"({NAME.pattern})\{{([^}}]*)\}}", expression):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked <= known[name], f"{name} has no label {sorted(asked - known[name])}"
    made = set(re.findall(r'"(\w+)", "\$1"', expression))  # by label_replace
    had = set.union(made, *(known[name] for name in names))
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|on|group_left|group_right) \(([^)]*)\)", expression)
        for label in labels.split(",")
        if label.strip()
    }
    assert grouped <= had, f"no metric has a label {sorted(grouped - had)}: {expression}"
    return had
