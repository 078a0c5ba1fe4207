"""The chart's dashboards: made from code, for any Grafana, of queries that Prometheus takes and metrics that exist."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paternoster_e2e.exported_metrics import MetricLabels, check_query, exported, recorded

NAMES = ("paternoster-fleet.json", "paternoster-fleets.json")
WINDOWS = {"$__rate_interval", "$__range"}
Document = dict[str, Any]


@pytest.fixture
def exported_labels(helm: Any) -> MetricLabels:
    """Every series that is exported, and what the chart's rules make of them."""
    documents = helm.render({"monitoring": {"prometheusRule": {"enabled": True}}})
    (rule,) = [document for document in documents if document["kind"] == "PrometheusRule"]
    return recorded(rule["spec"], exported())


@pytest.fixture
def dashboards(helm: Any) -> dict[str, Document]:
    documents = helm.render({"monitoring": {"grafanaDashboard": {"enabled": True}}})
    (document,) = [document for document in documents if document["kind"] == "ConfigMap"]
    return {name: json.loads(text) for name, text in document["data"].items()}


@pytest.fixture(params=NAMES)
def dashboard(dashboards: dict[str, Document], request: pytest.FixtureRequest) -> Document:
    return dashboards[request.param]


def panels(dashboard: Document) -> list[Document]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: Document) -> list[dict[str, str]]:
    return [target for panel in panels(dashboard) for target in panel["targets"]]


def variable_queries(dashboard: Document) -> list[str]:
    return [entry["query"]["query"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"]


def labels_left(expression: str, had: set[str]) -> set[str]:
    grouped = re.match(r"(?:\w+\()?\w+ by \(([^)]*)\)", expression)
    return {label.strip() for label in grouped[1].split(",")} if grouped else had


def test_both_are_there(dashboards: dict[str, Document]) -> None:
    assert tuple(sorted(dashboards)) == NAMES
    assert len({dashboard["uid"] for dashboard in dashboards.values()}) == len(NAMES)
    assert len({dashboard["title"] for dashboard in dashboards.values()}) == len(NAMES)


def test_they_are_up_to_date(root: Path) -> None:
    subprocess.run([sys.executable, root / "scripts/dashboard", "--check"], check=True)


def test_they_name_metrics_that_exist(dashboard: Document, exported_labels: MetricLabels) -> None:
    for target in targets(dashboard):
        had = check_query(target["expr"], exported_labels)
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert legend <= labels_left(target["expr"], had), target
    for annotation in dashboard["annotations"]["list"]:
        had = check_query(annotation["expr"], exported_labels)
        shown_labels = set(re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"] + annotation["textFormat"]))
        assert shown_labels, annotation
        assert shown_labels <= labels_left(annotation["expr"], had), annotation
    for query in variable_queries(dashboard):
        metric, label = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", query).groups()
        assert label in exported_labels[metric], query
        check_query(query, exported_labels)


def test_every_variable_is_defined(dashboard: Document) -> None:
    defined = {entry["name"] for entry in dashboard["templating"]["list"]}
    for text in [target["expr"] for target in targets(dashboard)] + variable_queries(dashboard):
        assert {name for name in re.findall(r"\$(\w+)", text) if not name.startswith("__")} <= defined, text


def test_every_panel_says_what_it_shows(dashboard: Document) -> None:
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)
    for panel in panels(dashboard):
        assert re.fullmatch(r"[A-Z].{20,}\.", panel["description"], re.DOTALL), panel["title"]


def test_what_decisions_said_is_shown(dashboard: Document) -> None:
    counted = "paternoster_operator_decisions_total"
    assert any(counted in annotation["expr"] for annotation in dashboard["annotations"]["list"])
    assert any(counted in target["expr"] for target in targets(dashboard))


def test_promtool_accepts_the_queries(dashboard: Document, promtool: Callable[..., None], tmp_path: Path) -> None:
    """Queries stand in recording rules, with what Grafana puts in for its variables."""
    selected = [entry["expr"] for entry in (*targets(dashboard), *dashboard["annotations"]["list"])]
    filled = [re.sub(r"\$\w+", "5m", expression) for expression in selected]
    recorded = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(filled)]
    document = {"groups": [{"name": "dashboard", "rules": recorded}]}
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump(document))
    promtool("check", "rules", "queries.yaml", cwd=tmp_path)


def test_they_fit_any_grafana(dashboard: Document) -> None:
    """No data source of somebody's own, no fixed rate window, and no two panels in one place."""
    placed = dashboard["panels"]
    assert len({panel["id"] for panel in placed}) == len(placed)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in placed]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in placed)
    for target in targets(dashboard):
        assert target["datasource"]["uid"] == "${datasource}"
        assert set(re.findall(r"\[([^]]*)\]", target["expr"])) <= WINDOWS
    for annotation in dashboard["annotations"]["list"]:
        assert annotation["datasource"]["uid"] == "${datasource}"


def test_they_go_where_the_sidecar_looks(helm: Any) -> None:
    settings = {"enabled": True, "namespace": "grafana", "folder": "LLM", "label": "dashboards", "labelValue": "yes"}
    documents = helm.render({"monitoring": {"grafanaDashboard": settings}})
    (document,) = [document for document in documents if document["kind"] == "ConfigMap"]
    assert document["metadata"]["namespace"] == "grafana"
    assert document["metadata"]["labels"]["dashboards"] == "yes"
    assert document["metadata"]["annotations"] == {"grafana_folder": "LLM"}
