"""The chart's monitoring: what is switched on, and that the PodMonitors scrape what is there."""

import re
from typing import Any

import pytest

from paternoster_contract import labels

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
    assert engine["podMetricsEndpoints"][0]["port"] == labels.ADMIN_PORT_NAME
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


@pytest.mark.parametrize("wanted", [False, True])
def test_engines_export_vllms_names_where_they_are_wanted(helm: Any, wanted: bool) -> None:
    """Nothing of ours reads them, so they are off; an endpoint picker or a recipe for KEDA does."""
    operator = chosen(helm.render({"engine": {"vllmMetrics": wanted}}), "Deployment")["fleet-paternoster-operator"]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert ("--engine-vllm-metrics" in container["args"]) is wanted
    assert "vllm:" not in helm.text(switched_on())
