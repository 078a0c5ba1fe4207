"""The chart with default values: a golden file, and what must hold for any pod and any object."""

import json
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

EVERYTHING: dict[str, dict[str, Any]] = {
    "keys": {"gatewaySecret": "gateways", "adminSecret": "admin"},
    "operator": {},
    "gateway": {
        "autoscaling": {"enabled": True},
        "ingress": {"enabled": True},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
    },
    "monitoring": {
        "namespaceLabels": {"team": "monitoring"},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True},
    },
}


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of all pods."""
    specs = [d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"]
    return specs + [d["spec"] for d in documents if d["kind"] == "Pod"]


def test_defaults(helm: Any, snapshot: SnapshotAssertion) -> None:
    # the CRD has a test of its own
    documents = [d for d in helm.render() if d["kind"] != "CustomResourceDefinition"]
    documents.sort(key=lambda d: (d["kind"], d["metadata"]["name"]))
    assert yaml.safe_dump_all(documents, sort_keys=False) == snapshot


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_two_renders_are_the_same(helm: Any, values: dict[str, Any]) -> None:
    assert helm.text(values) == helm.text(values)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"runAsUser": None, "runAsGroup": None, "fsGroup": None}, {}),
        (
            {"runAsUser": 1000660000, "fsGroup": 1000660000, "runAsGroup": None},
            {"runAsUser": 1000660000, "fsGroup": 1000660000},
        ),
    ],
    ids=["chosen-by-the-cluster", "given"],
)
def test_null_removes_a_user_of_every_pod(helm: Any, given: dict[str, Any], changed: dict[str, Any]) -> None:
    """Also of engines' pods, which the operator builds."""
    documents = helm.render({"podSecurityContext": given})
    wanted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **changed}
    assert [spec["securityContext"] for spec in pods(documents)] == [wanted] * 3
    assert json.loads(find_flag(documents, "--engine-security-context")) == wanted


def test_pull_secrets_are_those_of_engines_too(helm: Any) -> None:
    documents = helm.render({"imagePullSecrets": [{"name": "mirror"}]})
    assert [spec["imagePullSecrets"] for spec in pods(documents)] == [[{"name": "mirror"}]] * 3
    assert find_flag(documents, "--engine-pull-secret") == "mirror"


def find_flag(documents: list[dict[str, Any]], name: str) -> str:
    """Its value among the operator's arguments."""
    args = [arg for spec in pods(documents) for each in spec["containers"] for arg in each.get("args", ())]
    (value,) = (arg.partition("=")[2] for arg in args if arg.partition("=")[0] == name)
    return str(value)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_pod_is_restricted(helm: Any, values: dict[str, Any]) -> None:
    specs = pods(helm.render(values))
    assert len(specs) == 3
    for spec in specs:
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert spec["enableServiceLinks"] is False
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]


def test_only_the_operator_gets_a_token(helm: Any) -> None:
    documents = helm.render()
    tokens = {spec["containers"][0]["name"]: spec["automountServiceAccountToken"] for spec in pods(documents)}
    assert tokens == {"operator": True, "gateway": False, "test": False}
    accounts = [d for d in documents if d["kind"] == "ServiceAccount"]
    assert {d["metadata"]["name"] for d in accounts} == {"fleet-paternoster-operator", "fleet-paternoster-gateway"}
    assert not any(d["automountServiceAccountToken"] for d in accounts)


def test_common_labels_and_annotations_are_on_every_object(helm: Any) -> None:
    common = {"commonLabels": {"team": "lifts"}, "commonAnnotations": {"contact": "cellar"}}
    documents = helm.render({**EVERYTHING, "global": common})
    for document in documents:
        assert document["metadata"]["labels"]["team"] == "lifts", document["metadata"]["name"]
        assert document["metadata"]["annotations"]["contact"] == "cellar", document["metadata"]["name"]
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["metadata"]
            assert pod["labels"]["team"] == "lifts"
            assert "annotations" not in pod, "an annotation that changes restarts no pod"


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_labels_and_annotations_of_a_component_are_on_its_objects_alone(helm: Any, component: str) -> None:
    own = {"labels": {"team": "lifts"}, "annotations": {"contact": "cellar"}}
    documents = helm.render({**EVERYTHING, component: {**EVERYTHING[component], **own}})
    for document in documents:
        metadata = document["metadata"]
        of_it = metadata["labels"].get("app.kubernetes.io/component") == component and document["kind"] != "PodMonitor"
        assert (metadata["labels"].get("team") == "lifts") == of_it, metadata
        assert (metadata.get("annotations", {}).get("contact") == "cellar") == of_it, metadata


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Service", ("gateway", "service")),
        ("Ingress", ("gateway", "ingress")),
        ("HTTPRoute", ("gateway", "httpRoute")),
        ("ServiceAccount", ("gateway", "serviceAccount")),
        ("ServiceAccount", ("operator", "serviceAccount")),
    ],
)
def test_what_an_object_is_given_comes_before_the_rest(helm: Any, kind: str, path: tuple[str, str]) -> None:
    component, key = path
    of_all = {"labels": {"team": "all"}, "annotations": {"contact": "all"}}
    own = {"labels": {"team": "own"}, "annotations": {"contact": "own"}}
    settings = EVERYTHING[component] | of_all
    documents = helm.render({component: settings | {key: settings.get(key, {}) | own}})
    name = f"fleet-paternoster-{component}"
    (found,) = (d["metadata"] for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    assert (found["labels"]["team"], found["annotations"]["contact"]) == ("own", "own")


def test_common_labels_do_not_break_selectors(helm: Any) -> None:
    documents = helm.render({"global": {"commonLabels": {"app.kubernetes.io/component": "mine"}}})
    for document in (d for d in documents if d["kind"] == "Deployment"):
        labels = document["spec"]["template"]["metadata"]["labels"]
        assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_services_select_the_pods_of_their_component_alone(helm: Any) -> None:
    documents = helm.render()
    labels = {
        d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
        for d in documents
        if d["kind"] == "Deployment"
    }
    for service in (d for d in documents if d["kind"] == "Service"):
        chosen = [name for name, own in labels.items() if service["spec"]["selector"].items() <= own.items()]
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        assert chosen == [f"fleet-paternoster-{component}"]


def test_namespace_override_moves_every_object(helm: Any) -> None:
    documents = helm.render({**EVERYTHING, "namespaceOverride": "elsewhere"})
    places = {d["metadata"]["namespace"] for d in documents if "namespace" in d["metadata"]}
    assert places == {"elsewhere"}
    assert "lifts.svc" not in helm.text({"namespaceOverride": "elsewhere"})


@pytest.mark.parametrize("name", ["l" * 53, "paternoster"])
def test_names_fit(helm: Any, name: str) -> None:
    for document in helm.render({**EVERYTHING, "nameOverride": name}):
        # names of roles and of CRDs may be longer
        if "Role" not in document["kind"] and document["kind"] != "CustomResourceDefinition":
            assert len(document["metadata"]["name"]) <= 63
