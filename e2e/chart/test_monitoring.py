"""The chart's monitoring: what it renders, that Prometheus takes the rules, and that no query names what is not there.

A query for a metric that nobody exports is no error anywhere: the panel stays empty and the alert never fires.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paternoster_contract import labels
from paternoster_contract.metrics import ENGINE_METRICS, MODEL_LABEL
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_operator.metrics import OperatorMetrics

ROOT = Path(__file__).resolve().parents[2]
SCRAPED = {"namespace", "pod"}
"""Labels that every target gets from a PodMonitor."""
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
Document = dict[str, Any]


def chosen(documents: list[Document], kind: str) -> dict[str, Document]:
    """The documents of one kind by name."""
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def switched_on(**settings: Document) -> Document:
    """Values with all of the monitoring on; ``settings`` by its three parts."""
    parts = ("podMonitor", "prometheusRule", "grafanaDashboard")
    return {"monitoring": {part: {"enabled": True, **settings.get(part, {})} for part in parts}}


@pytest.fixture
def rendered(helm: Any) -> list[Document]:
    return helm.render(switched_on())


@pytest.fixture
def rules(rendered: list[Document]) -> Document:
    (rule,) = chosen(rendered, "PrometheusRule").values()
    return rule["spec"]


@pytest.fixture
def dashboard(rendered: list[Document]) -> Document:
    return json.loads(chosen(rendered, "ConfigMap")["fleet-paternoster-dashboard"]["data"]["paternoster-fleet.json"])


def exported() -> dict[str, set[str]]:
    """Every series that engine, operator and gateway export, with its labels."""
    known = {
        metric.name + suffix: {MODEL_LABEL, "llmdeployment", *metric.labels, *SCRAPED}
        for metric in ENGINE_METRICS
        for suffix in SUFFIXES[metric.kind]
    }
    for registry in (OperatorMetrics().registry, GatewayMetrics().registry):
        for name, own in registered(registry):
            known[name] = {*own, *SCRAPED}
    return known | {name: {*own, "le"} for name, own in known.items() if name.endswith("_bucket")}


def registered(registry: CollectorRegistry) -> Iterator[tuple[str, tuple[str, ...]]]:
    # No public way gives the labels of a metric that has no series yet.
    for collector in registry._collector_to_names:
        assert isinstance(collector, Counter | Gauge | Histogram)
        (family,) = collector.describe()
        for suffix in SUFFIXES[family.type]:
            yield family.name + suffix, collector._labelnames


def rule_expressions(rules: Document) -> list[str]:
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def targets(dashboard: Document) -> list[dict[str, str]]:
    return [target for panel in dashboard["panels"] for target in panel.get("targets", ())]


def variable_queries(dashboard: Document) -> list[str]:
    return [entry["query"]["query"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"]


def check_query(expression: str, known: dict[str, set[str]]) -> set[str]:
    """Every metric exists and has the labels asked for; returns all labels that the query's metrics have."""
    names = re.findall(r"\b(?:paternoster|vllm)[\w:]*", expression)
    assert names, expression
    assert set(names) <= known.keys(), f"unknown: {sorted(set(names) - known.keys())}"
    for name, matchers in re.findall(r"(paternoster[\w:]*)\{([^}]*)\}", expression):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked <= known[name], f"{name} has no label {sorted(asked - known[name])}"
    had = set.union(*(known[name] for name in names))
    grouped = {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(",")}
    assert grouped <= had, f"no metric has a label {sorted(grouped - had)}: {expression}"
    return had


def test_rules_name_metrics_that_exist(rules: Document) -> None:
    known = exported()
    for group in rules["groups"]:
        for rule in group["rules"]:
            had = check_query(rule["expr"], known)
            if "record" in rule:
                known[rule["record"]] = {"namespace", "llmdeployment"} if " by " in rule["expr"] else set()
            said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values())))
            assert said <= had, rule["alert"]


def test_dashboard_names_metrics_that_exist(dashboard: Document) -> None:
    known = exported()
    for target in targets(dashboard):
        had = check_query(target["expr"], known)
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.search(r"\bby \(([^)]*)\)", target["expr"])
        left = {label.strip() for label in grouped[1].split(",")} if grouped else had
        assert legend <= left, target
    for query in variable_queries(dashboard):
        metric, label = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", query).groups()
        assert label in known[metric], query


def test_promtool_accepts_the_rules(rules: Document, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    promtool("check", "rules", "rules.yaml", cwd=tmp_path)


def test_alerts_fire_when_they_should(rules: Document, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    shutil.copy(Path(__file__).with_name("rules_test.yaml"), tmp_path)
    promtool("test", "rules", "rules_test.yaml", cwd=tmp_path)


def test_promtool_accepts_the_dashboards_queries(dashboard: Document, tmp_path: Path) -> None:
    """As recording rules, with what Grafana puts in for its variables."""
    filled = [re.sub(r"\$\w+", "5m", target["expr"]) for target in targets(dashboard)]
    recorded = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(filled)]
    document = {"groups": [{"name": "dashboard", "rules": recorded}]}
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump(document))
    promtool("check", "rules", "queries.yaml", cwd=tmp_path)


def promtool(*arguments: str, cwd: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        reason = "no promtool: it comes with Prometheus"
        if os.environ.get("REQUIRE_COMPONENTS"):
            pytest.fail(reason)
        pytest.skip(reason)
    ran = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_dashboard_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/dashboard", "--check"], check=True)


def test_dashboard_fits_any_grafana(dashboard: Document) -> None:
    """No data source of somebody's own, no fixed rate window, and no two panels in one place."""
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    for target in targets(dashboard):
        assert target["datasource"]["uid"] == "${datasource}"
        assert set(re.findall(r"\[([^]]*)\]", target["expr"])) <= {"$__rate_interval"}


def test_nothing_is_rendered_by_default(helm: Any) -> None:
    documents = helm.render()
    assert not chosen(documents, "PodMonitor")
    assert not chosen(documents, "PrometheusRule")
    assert not chosen(documents, "ConfigMap")


@pytest.mark.parametrize(
    ("part", "kind", "number"),
    [("podMonitor", "PodMonitor", 3), ("prometheusRule", "PrometheusRule", 1), ("grafanaDashboard", "ConfigMap", 1)],
)
def test_each_part_is_switched_on_alone(helm: Any, part: str, kind: str, number: int) -> None:
    added = len(helm.render({"monitoring": {part: {"enabled": True}}})) - len(helm.render())
    assert added == number == len(chosen(helm.render({"monitoring": {part: {"enabled": True}}}), kind))


def test_pod_monitors_select_the_pods(rendered: list[Document]) -> None:
    monitors = chosen(rendered, "PodMonitor")
    assert monitors.keys() == {f"fleet-paternoster-{component}" for component in ("engine", "operator", "gateway")}
    engine = monitors.pop("fleet-paternoster-engine")["spec"]
    assert engine["selector"]["matchLabels"].items() <= labels.engine_labels("any").items()
    assert engine["namespaceSelector"] == {"any": True}
    assert engine["podMetricsEndpoints"][0]["port"] == labels.ENGINE_PORT_NAME
    relabeling = {
        "sourceLabels": ["__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", labels.INSTANCE)],
        "targetLabel": "llmdeployment",
    }
    assert engine["podMetricsEndpoints"][0]["relabelings"] == [relabeling]
    for name, monitor in monitors.items():
        template = chosen(rendered, "Deployment")[name]["spec"]["template"]
        selected = monitor["spec"]["selector"]["matchLabels"]
        assert selected.items() <= template["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        ports = [port["name"] for container in template["spec"]["containers"] for port in container["ports"]]
        assert endpoint["port"] in ports
        # Otherwise the namespace that a series is about would become that of the operator's pod.
        assert endpoint.get("honorLabels", False) is (name == "fleet-paternoster-operator")


def test_pod_monitors_follow_the_values(helm: Any) -> None:
    settings = {
        "labels": {"release": "prometheus"},
        "interval": "30s",
        "scrapeTimeout": "5s",
        "relabelings": [{"action": "labeldrop", "regex": "container"}],
        "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "vllm:.*"}],
    }
    scope = {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["red", "blue"], "gateway": {"enabled": False}}
    monitors = chosen(helm.render({**switched_on(podMonitor=settings), **scope}), "PodMonitor")
    assert monitors.keys() == {"fleet-paternoster-engine", "fleet-paternoster-operator"}
    assert monitors["fleet-paternoster-engine"]["spec"]["namespaceSelector"] == {"matchNames": ["red", "blue"]}
    assert monitors["fleet-paternoster-operator"]["spec"]["namespaceSelector"] == {"matchNames": ["lifts"]}
    for monitor in monitors.values():
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("30s", "5s")
        assert endpoint["relabelings"][-1] == settings["relabelings"][0]
        assert endpoint["metricRelabelings"] == settings["metricRelabelings"]


@pytest.mark.parametrize("ratio", [0.1, "0.1"])
def test_thresholds_come_from_the_values(helm: Any, ratio: float | str) -> None:
    """A fraction is a number in a file and text after --set."""
    settings = {
        "additionalLabels": {"release": "prometheus"},
        "thresholds": {"preemptionWarningRatio": ratio, "queueFor": "1h"},
    }
    (rule,) = chosen(helm.render(switched_on(prometheusRule=settings)), "PrometheusRule").values()
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    alerts = {alert.get("alert"): alert for group in rule["spec"]["groups"] for alert in group["rules"]}
    assert alerts["PaternosterPreemptionHigh"]["expr"].endswith("> 0.1")
    assert alerts["PaternosterQueueLong"]["for"] == "1h"


def test_a_threshold_that_is_taken_away_is_named(helm: Any) -> None:
    settings = {"thresholds": {"heldFor": None}}
    assert "${heldFor}" in helm.refusal(switched_on(prometheusRule=settings))


def test_dashboard_goes_where_the_sidecar_looks(helm: Any) -> None:
    settings = {"namespace": "grafana", "folder": "LLM", "label": "dashboards", "labelValue": "yes"}
    (document,) = chosen(helm.render(switched_on(grafanaDashboard=settings)), "ConfigMap").values()
    assert document["metadata"]["namespace"] == "grafana"
    assert document["metadata"]["labels"]["dashboards"] == "yes"
    assert document["metadata"]["annotations"] == {"grafana_folder": "LLM"}
