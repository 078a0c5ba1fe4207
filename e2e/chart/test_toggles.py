"""Every switch, on and off: which objects come and go, and what changes in those that stay."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paternoster_contract.http import paths
from paternoster_contract.http.routes import ROUTES, Kind
from paternoster_e2e.permissions import PERMISSION_VALUES

CHART = Path(__file__).resolve().parents[2] / "charts/paternoster"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
CHART_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"]
ISSUER = {"name": "internal-ca", "kind": "ClusterIssuer"}
NEEDED = {
    "gateway": {
        "httpRoute": {"parentRefs": [{"name": "public"}]},
        "tls": {"secretName": "certificate", "certManager": {"issuerRef": ISSUER}},
    }
}
"""What some switches want to be set, too."""
GATEWAY = {
    ("NetworkPolicy", "fleet-paternoster-gateway"),
    ("Deployment", "fleet-paternoster-gateway"),
    ("PodDisruptionBudget", "fleet-paternoster-gateway"),
    ("Secret", "fleet-paternoster-routes"),
    ("Service", "fleet-paternoster-gateway"),
    ("Service", "fleet-paternoster-gateway-pods"),
    ("ServiceAccount", "fleet-paternoster-gateway"),
}
Names = set[tuple[str, str]]


def switches(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all booleans, but for those of monitoring, which has tests of its own."""
    for key, value in values.items():
        if isinstance(value, bool):
            yield *path, key
        elif isinstance(value, dict) and key != "monitoring":
            yield from switches(value, (*path, key))


def setting(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {path[0]: setting(path[1:], value) if path[1:] else value}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = base | over
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            both[key] = merged(base[key], over[key])
    return both


def names(documents: list[dict[str, Any]]) -> Names:
    return {(d["kind"], d["metadata"]["name"]) for d in documents}


def only(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.parametrize("path", list(switches(VALUES)), ids=".".join)
def test_every_switch_does_something(helm: Any, path: tuple[str, ...]) -> None:
    needed = NEEDED if "certManager" not in path else merged(NEEDED, {"gateway": {"tls": {"enabled": True}}})
    on, off = (helm.text(merged(needed, setting(path, value))) for value in (True, False))
    assert on != off
    assert list(yaml.load_all(on, yaml.CSafeLoader))
    assert list(yaml.load_all(off, yaml.CSafeLoader))


def test_every_switch_that_changes_permissions_is_installed(helm: Any) -> None:
    """Switches that e2e/install/test_permissions.py installs until a fleet is Ready."""

    def permissions(values: dict[str, Any]) -> list[dict[str, Any]]:
        return [each for each in helm.render(merged(NEEDED, values)) if "Role" in each["kind"]]

    namespaced = {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["red"]}
    changing = set()
    for path in switches(VALUES):
        for base in ({}, namespaced):
            on, off = (permissions(merged(base, setting(path, value))) for value in (True, False))
            if on != off:
                changing.add(".".join(path))
    installed = {value.partition("=")[0] for values in PERMISSION_VALUES.values() for value in values}
    assert changing <= installed
    assert {"engine.networkPolicy.enabled", "gateway.enabled", "rbac.create"} <= changing


@pytest.mark.parametrize(
    ("switch", "value", "gone", "new"),
    [
        ("gateway.enabled", False, GATEWAY, set()),
        ("gateway.podDisruptionBudget.enabled", False, {("PodDisruptionBudget", "fleet-paternoster-gateway")}, set()),
        ("gateway.autoscaling.enabled", True, set(), {("HorizontalPodAutoscaler", "fleet-paternoster-gateway")}),
        ("gateway.ingress.enabled", True, set(), {("Ingress", "fleet-paternoster-gateway")}),
        ("gateway.httpRoute.enabled", True, set(), {("HTTPRoute", "fleet-paternoster-gateway")}),
        ("gateway.networkPolicy.enabled", False, {("NetworkPolicy", "fleet-paternoster-gateway")}, set()),
        ("gateway.serviceAccount.create", False, {("ServiceAccount", "fleet-paternoster-gateway")}, set()),
        ("operator.podDisruptionBudget.enabled", False, {("PodDisruptionBudget", "fleet-paternoster-operator")}, set()),
        (
            "operator.networkPolicy.enabled",
            False,
            {("NetworkPolicy", "fleet-paternoster-operator"), ("NetworkPolicy", "fleet-paternoster-test")},
            set(),
        ),
        ("operator.serviceAccount.create", False, {("ServiceAccount", "fleet-paternoster-operator")}, set()),
        ("crds.enabled", False, {("CustomResourceDefinition", "llmdeployments.paternoster.dev")}, set()),
    ],
)
def test_objects_come_and_go(helm: Any, switch: str, value: bool, gone: Names, new: Names) -> None:
    before = names(helm.render(NEEDED))
    after = names(helm.render(merged(NEEDED, setting(tuple(switch.split(".")), value))))
    assert (before - after, after - before) == (gone, new)


def test_without_rbac_there_are_no_roles(helm: Any) -> None:
    kinds = {kind for kind, _ in names(helm.render({"rbac": {"create": False}}))}
    assert not {kind for kind in kinds if "Role" in kind}


def test_without_a_gateway_nothing_speaks_of_one(helm: Any) -> None:
    assert "gateway-pods" not in helm.text({"gateway": {"enabled": False}})


def test_two_operators_are_spread_over_nodes_and_one_stays(helm: Any) -> None:
    documents = helm.render()
    deployment = only(documents, "Deployment", "fleet-paternoster-operator")["spec"]
    assert deployment["replicas"] == 2
    (constraint,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    # on a single node both run on it
    assert (constraint["topologyKey"], constraint["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert constraint["labelSelector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert only(documents, "PodDisruptionBudget", "fleet-paternoster-operator")["spec"]["maxUnavailable"] == 1


def peers(rules: list[dict[str, Any]], side: str) -> set[tuple[Any, ...]]:
    """Who is reached on which ports: components, or the labels of their namespaces; "any" stands for every peer."""
    found: set[tuple[Any, ...]] = set()
    for rule in rules:
        ports = tuple(sorted({str(port["port"]) for port in rule.get("ports", [])}))
        for peer in rule.get(side, [{}]):
            component = peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component", "")
            names = peer.get("namespaceSelector", {}).get("matchLabels", {})
            found.add((component or ",".join(names.values()) or "any", *ports))
    return found


@pytest.mark.parametrize(
    ("name", "ingress", "egress"),
    [
        (
            "operator",
            {("gateway", "http"), ("test", "http"), ("monitoring", "http")},
            {
                ("any", "53", "5353"),
                ("any", "16443", "443", "6443", "8443"),
                ("engine", "8000", "8001"),
                ("gateway", "8081"),
            },
        ),
        (
            "gateway",
            {("any", "http"), ("operator", "stats"), ("monitoring", "stats")},
            {("any", "53", "5353"), ("operator", "8080"), ("engine", "8000")},
        ),
        ("test", set(), {("any", "53", "5353"), ("operator",), ("gateway",)}),
    ],
)
def test_who_may_talk_to_whom(helm: Any, name: str, ingress: set[Any], egress: set[Any]) -> None:
    policy = only(helm.render(), "NetworkPolicy", f"fleet-paternoster-{name}")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert peers(policy.get("ingress", []), "from") == ingress
    assert peers(policy["egress"], "to") == egress


def test_the_operator_may_reach_pods_that_a_target_names(helm: Any) -> None:
    rule = {"to": [{"podSelector": {"matchLabels": {"app": "chat"}}}], "ports": [{"port": 9000}]}
    values = {"operator": {"networkPolicy": {"extraEgress": [rule]}}}
    policy = only(helm.render(values), "NetworkPolicy", "fleet-paternoster-operator")["spec"]
    assert rule in policy["egress"]
    assert len(policy["egress"]) == 1 + len(
        only(helm.render(), "NetworkPolicy", "fleet-paternoster-operator")["spec"]["egress"]
    )


def test_the_namespaces_that_scrape_are_a_setting(helm: Any) -> None:
    values = {"monitoring": {"namespaceLabels": {"team": "watchers"}}}
    policy = only(helm.render(values), "NetworkPolicy", "fleet-paternoster-operator")["spec"]
    assert ("watchers", "http") in peers(policy["ingress"], "from")
    assert ("monitoring", "http") not in peers(policy["ingress"], "from")
    (container,) = only(helm.render(values), "Deployment", "fleet-paternoster-operator")["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--scraper-namespace-labels=team=watchers" in container["args"]


def leads_to(prefixes: list[str], path: str) -> bool:
    """Whether a prefix matches as in Ingress and HTTPRoute: it ends where a part of the path ends."""
    return any(f"{path}/".startswith(f"{prefix}/") for prefix in prefixes)


def test_what_clients_call_is_routed_from_outside_and_nothing_else(helm: Any) -> None:
    documents = helm.render(merged(NEEDED, {"gateway": {"ingress": {"enabled": True}, "httpRoute": {"enabled": True}}}))
    (rule,) = only(documents, "Ingress", "fleet-paternoster-gateway")["spec"]["rules"]
    by_ingress = [each["path"] for each in rule["http"]["paths"]]
    (rule,) = only(documents, "HTTPRoute", "fleet-paternoster-gateway")["spec"]["rules"]
    by_route = [each["path"]["value"] for each in rule["matches"]]
    for prefixes in (by_ingress, by_route):
        for route in ROUTES:
            # vLLM has these below /v1; the gateway answers them with 404.
            if route.path not in (paths.LOAD_LORA_ADAPTER, paths.UNLOAD_LORA_ADAPTER):
                assert leads_to(prefixes, route.path) == (route.kind is Kind.API), route.path


def test_replicas_belong_to_the_autoscaler(helm: Any) -> None:
    deployment = only(helm.render(), "Deployment", "fleet-paternoster-gateway")
    assert deployment["spec"]["replicas"] == 2
    scaled = helm.render({"gateway": {"autoscaling": {"enabled": True}}})
    assert "replicas" not in only(scaled, "Deployment", "fleet-paternoster-gateway")["spec"]


@pytest.mark.parametrize("seconds", [0, 300, 7200, 1_000_000])
def test_a_pod_lives_longer_than_its_drain(helm: Any, seconds: int) -> None:
    documents = helm.render({"gateway": {"drainTimeoutSeconds": seconds, "shutdownDelaySeconds": 7}})
    pod = only(documents, "Deployment", "fleet-paternoster-gateway")["spec"]["template"]["spec"]
    assert "--shutdown-delay-seconds=7" in pod["containers"][0]["args"]
    assert f"--drain-timeout={seconds}" in pod["containers"][0]["args"]
    assert pod["terminationGracePeriodSeconds"] == seconds + 7 + 15


def test_one_registry_is_before_every_image(helm: Any) -> None:
    text = helm.text(
        {"global": {"imageRegistry": "registry.example:5000/team"}, "engine": {"fetchImage": {"repository": "f"}}}
    )
    named = set(re.findall(r"[\w.:/-]*\b(?:paternoster-(?:operator|gateway|engine)|f):\d[\w.]*", text))
    assert named == {
        f"registry.example:5000/team/{name}:{CHART_VERSION}"
        for name in ("paternoster-operator", "paternoster-gateway", "paternoster-engine", "f")
    }


@pytest.mark.parametrize("seconds", [0, 15, 3600])
def test_silent_streams_get_comments_or_none(helm: Any, seconds: int) -> None:
    pod = only(helm.render({"gateway": {"streamCommentSeconds": seconds}}), "Deployment", "fleet-paternoster-gateway")[
        "spec"
    ]["template"]["spec"]
    assert f"--stream-comment-seconds={seconds}" in pod["containers"][0]["args"]


def test_an_image_by_digest(helm: Any) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    named = f"registry.example/x@{digest}"
    image = {"repository": "registry.example/x", "tag": "9", "digest": digest}
    documents = helm.render({"operator": {"image": image}, "gateway": {"image": image}, "engine": {"image": image}})
    (operator,) = only(documents, "Deployment", "fleet-paternoster-operator")["spec"]["template"]["spec"]["containers"]
    (gateway,) = only(documents, "Deployment", "fleet-paternoster-gateway")["spec"]["template"]["spec"]["containers"]
    assert operator["image"] == gateway["image"] == named
    assert {f"--engine-image={named}", f"--fetch-image={named}"} <= set(operator["args"])
    assert "x:9" not in yaml.safe_dump_all(documents)


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_settings_of_a_pod(helm: Any, component: str) -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    settings = {
        "nodeSelector": {"pool": "system"}, "tolerations": [toleration], "affinity": affinity,
        "priorityClassName": "high", "podAnnotations": {"note": "a"}, "podLabels": {"team": "b"},
        "extraEnv": [{"name": "A", "value": "1"}], "extraArgs": ["--more"],
    }  # fmt: skip
    documents = helm.render({component: settings, "imagePullSecrets": [{"name": "pull"}]})
    template = only(documents, "Deployment", f"fleet-paternoster-{component}")["spec"]["template"]
    spec = template["spec"]
    assert {key: spec[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")} == {
        key: settings[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    }
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert template["metadata"]["annotations"] == {"note": "a"}
    assert template["metadata"]["labels"]["team"] == "b"
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert spec["containers"][0]["args"][-1] == "--more"


def test_extra_objects_as_maps_and_as_templates(helm: Any) -> None:
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"a": "{{ not read }}"}}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-text\n"
    documents = helm.render({"extraObjects": [plain, text]})
    assert only(documents, "ConfigMap", "plain") == plain
    assert only(documents, "ConfigMap", "fleet-text")


def test_flow_schemas_are_of_the_operator_alone(helm: Any) -> None:
    documents = {
        document["metadata"]["name"]: document for document in helm.render() if document["kind"] == "FlowSchema"
    }
    lease, rest = (documents.pop(f"lifts-fleet-paternoster-{what}") for what in ("lease", "operator"))
    assert not documents
    for schema in (lease, rest):
        (rule,) = schema["spec"]["rules"]
        account = {"name": "fleet-paternoster-operator", "namespace": "lifts"}
        assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": account}]
    assert lease["spec"]["priorityLevelConfiguration"]["name"] == "leader-election"
    assert lease["spec"]["matchingPrecedence"] < rest["spec"]["matchingPrecedence"], "the narrower one is asked first"
    assert rest["spec"]["priorityLevelConfiguration"]["name"] == "workload-low"


@pytest.mark.parametrize(
    "values",
    [
        {"operator": {"flowSchemas": {"enabled": False}}},
        {"rbac": {"scope": "namespaced"}},
    ],
)
def test_no_flow_schema_is_made(helm: Any, values: dict[str, Any]) -> None:
    assert not [document for document in helm.render(values) if document["kind"] == "FlowSchema"]
