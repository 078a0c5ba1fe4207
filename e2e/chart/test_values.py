"""Wrong values are refused, and the message names the field."""

from typing import Any

import pytest

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"rbac": {"scope": "world"}}, "/rbac/scope", "'cluster', 'namespaced'"),
        ({"gateway": {"replicas": "two"}}, "/gateway/replicas", "want integer"),
        ({"gateway": {"replica": 2}}, "/gateway", "'replica'"),
        ({"gatewy": {}}, "''", "'gatewy'"),
        ({"operator": {"replicas": 0}}, "/operator/replicas", "minimum"),
        ({"operator": {"image": {"tag": 1.0}}}, "/operator/image/tag", "want string"),
        ({"engine": {"image": {"digest": "sha256:abc"}}}, "/engine/image/digest", "pattern"),
        ({"watchNamespaces": "red"}, "/watchNamespaces", "want array"),
        ({"watchNamespaces": [1]}, "/watchNamespaces/0", "want string"),
        ({"gateway": {"service": {"port": 70000}}}, "/gateway/service/port", "maximum"),
        ({"gateway": {"service": {"type": "ExternalName"}}}, "/gateway/service/type", "'ClusterIP'"),
        ({"operator": {"podDisruptionBudget": {"maxUnavailable": True}}}, "/maxUnavailable", "want integer or string"),
        ({"fullnameOverride": "Fleet"}, "/fullnameOverride", "pattern"),
    ],
)
def test_the_schema_refuses(helm: Any, values: dict[str, Any], field: str, word: str) -> None:
    message = helm.refusal(values)
    assert field in message
    assert word in message


def test_an_http_route_needs_a_gateway_to_attach_to(helm: Any) -> None:
    assert "gateway.httpRoute.parentRefs" in helm.refusal({"gateway": {"httpRoute": {"enabled": True}}})


def test_renamed_value_is_refused_with_its_new_name(helm: Any) -> None:
    refusal = helm.refusal({"gateway": {"farewellSeconds": 7}})
    assert "gateway.farewellSeconds was renamed: use gateway.shutdownDelaySeconds" in refusal


def test_namespaces_to_watch_need_the_namespaced_scope(helm: Any) -> None:
    assert "rbac.scope=namespaced" in helm.refusal({"watchNamespaces": ["red"]})


@pytest.mark.parametrize(
    "values",
    [
        {"operator": {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}}},
        # keys of a chart that has this one as a dependency
        {"global": {"imageRegistry": "registry.example"}},
        {"operator": {"resources": {"limits": {"example.com/device": 1}}}},
    ],
)
def test_the_schema_accepts(helm: Any, values: dict[str, Any]) -> None:
    assert helm.render(values)


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"operator": {"image": {"repository": "mirror/operator", "tag": "1"}}}, "mirror/operator:1"),
        ({"engine": {"fetchImage": {"repository": "mirror/fetch", "digest": DIGEST}}}, f"mirror/fetch@{DIGEST}"),
    ],
)
def test_models_are_fetched_with_the_operators_image_or_with_another(
    helm: Any, values: dict[str, Any], image: str
) -> None:
    [args] = [
        document["spec"]["template"]["spec"]["containers"][0]["args"]
        for document in helm.render(values)
        if document["kind"] == "Deployment" and document["metadata"]["name"].endswith("operator")
    ]
    assert f"--fetch-image={image}" in args
