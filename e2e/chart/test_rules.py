"""The chart's alerts: Prometheus takes them, they fire when they should and only then, and each has its page."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paternoster_e2e.exported_metrics import exported, recorded
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_operator.api.types.objective import Slo
from paternoster_operator.cluster.port import Key
from paternoster_operator.metrics import OBJECTIVES, OperatorMetrics

UNIT_TESTS = sorted(Path(__file__).with_name("rules").glob("*.yaml"))
Document = dict[str, Any]
Promtool = Callable[..., None]


@pytest.fixture
def rules(helm: Any) -> Document:
    documents = helm.render({"monitoring": {"prometheusRule": {"enabled": True}}})
    (rule,) = [document for document in documents if document["kind"] == "PrometheusRule"]
    return rule["spec"]


@pytest.fixture
def alerts(rules: Document) -> dict[str, Document]:
    """The alerts by name; each name is given once."""
    found = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    by_name = {rule["alert"]: rule for rule in found}
    assert len(by_name) == len(found) > 0
    return by_name


def pages(root: Path) -> dict[str, str]:
    return {page.stem: page.read_text("utf-8") for page in (root / "docs/runbooks").glob("*.md")}


def test_rules_name_metrics_that_exist(rules: Document) -> None:
    exported_names = exported()
    assert len(recorded(rules, exported_names)) > len(exported_names)


def test_promtool_accepts_the_rules(rules: Document, promtool: Promtool, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    promtool("check", "rules", "rules.yaml", cwd=tmp_path)


@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should(rules: Document, promtool: Promtool, file: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    shutil.copy(file, tmp_path / "test.yaml")
    promtool("test", "rules", "test.yaml", cwd=tmp_path)


def test_each_alert_is_seen_to_fire_and_to_keep_silent(alerts: dict[str, Document]) -> None:
    """In the unit tests: as ``ALERTS{alertname="..."}`` or by ``alert_rule_test``, with series and without."""
    seen: set[tuple[str, bool]] = set()
    for file in UNIT_TESTS:
        for test in yaml.safe_load(file.read_text("utf-8"))["tests"]:
            for check in test.get("alert_rule_test", ()):
                seen.add((check["alertname"], bool(check["exp_alerts"])))
            for check in test.get("promql_expr_test", ()):
                for name in re.findall(r'^(?:count_over_time\()?ALERTS\{alertname="(\w+)"', check["expr"]):
                    seen.add((name, bool(check["exp_samples"])))
    assert seen == {(name, fires) for name in alerts for fires in (False, True)}


def test_every_alert_says_what_it_is(alerts: dict[str, Document]) -> None:
    for name, alert in alerts.items():
        assert alert["labels"]["severity"] in ("warning", "critical"), name
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}, name
        assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{name}.md")


def test_every_alert_has_its_page_and_every_page_its_alert(alerts: dict[str, Document], root: Path) -> None:
    written = pages(root)
    index = written.pop("README")
    assert written.keys() == alerts.keys()
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", index, re.MULTILINE)
    assert listed == [(name, name, alert["labels"]["severity"]) for name, alert in sorted(alerts.items())]
    for name, text in written.items():
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert headings == [name, "Meaning", "Impact", "Diagnosis", "Mitigation"], name


def test_pages_name_metrics_that_exist(rules: Document, root: Path) -> None:
    series = recorded(rules, exported()).keys()
    series_names = series | {name.removesuffix("_bucket") for name in series}
    for name, text in pages(root).items():
        named = set(
            re.findall(r"\b(?:paternoster_(?:engine|operator|gateway|build|llmdeployment)|process)[_:][\w:]+", text)
        )
        assert named <= series_names, name


def test_runbooks_are_where_the_values_say(helm: Any) -> None:
    settings = {"enabled": True, "runbookUrl": "https://wiki.example/llm"}
    text = helm.text({"monitoring": {"prometheusRule": settings}})
    assert "runbook_url: https://wiki.example/llm/PaternosterStalled.md" in text


@pytest.mark.parametrize("ratio", [0.1, "0.1"])
def test_thresholds_come_from_the_values(helm: Any, ratio: float | str) -> None:
    """A fraction is a number in a file and text after --set."""
    settings = {
        "enabled": True,
        "additionalLabels": {"release": "prometheus"},
        "thresholds": {"preemptionWarningRatio": ratio, "queueFor": "1h"},
    }
    documents = helm.render({"monitoring": {"prometheusRule": settings}})
    (rule,) = [document for document in documents if document["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    alerts = {alert.get("alert"): alert for group in rule["spec"]["groups"] for alert in group["rules"]}
    assert alerts["PaternosterPreemptionHigh"]["expr"].endswith("> 0.1")
    assert alerts["PaternosterQueueLong"]["for"] == "1h"


def test_a_threshold_that_is_taken_away_is_named(helm: Any) -> None:
    settings = {"enabled": True, "thresholds": {"heldFor": None}}
    assert "${heldFor}" in helm.refusal({"monitoring": {"prometheusRule": settings}})


def test_limits_and_buckets_are_written_alike() -> None:
    """The rules look for the engine's bucket by the operator's word for its edge."""
    metrics, histograms, key = OperatorMetrics(), Histograms("m"), Key("llm", "chat")
    for objective, histogram in OBJECTIVES.items():
        buckets = histograms.collect(histogram).samples
        edges = {sample.labels["le"] for sample in buckets if "le" in sample.labels}
        for edge in edges - {"+Inf"}:
            metrics.observe_slo(key, Slo(**{f"{objective}_p95_milliseconds": math.ceil(1000 * float(edge))}))
            bucket_labels = [sample.labels["bucket"] for sample in metrics.slo.collect()[0].samples]
            assert bucket_labels
            assert set(bucket_labels) <= edges
