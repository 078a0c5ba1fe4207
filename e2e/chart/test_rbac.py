"""What the operator and people may do: the exact set, in both scopes."""

from typing import Any

import pytest

from paternoster_operator.cluster.buckets import MAX_SHARDS

Rules = dict[tuple[str, str], set[str]]

CHILDREN = {"get", "list", "watch", "create", "patch"}
OPERATOR: Rules = {
    ("paternoster.dev", "llmdeployments"): {"list", "watch"},
    ("paternoster.dev", "llmdeployments/status"): {"patch"},
    ("paternoster.dev", "llmdeployments/finalizers"): {"update"},
    ("apps", "deployments"): CHILDREN,
    ("", "services"): CHILDREN,
    ("policy", "poddisruptionbudgets"): CHILDREN,
    ("networking.k8s.io", "networkpolicies"): CHILDREN,
    ("apps", "replicasets"): {"list", "watch"},
    ("", "secrets"): {"get", "create", "patch"},
    ("", "pods"): {"list", "watch", "patch"},
    ("events.k8s.io", "events"): {"list", "create"},
}
LEASES: Rules = {
    ("coordination.k8s.io", "leases"): {"get", "create", "update"},
    ("", "configmaps"): {"get", "create", "update"},
}
RELEASES: Rules = {("", "secrets"): {"get", "create", "patch"}}
"""Secrets of the release, where the operator does not watch its namespace: root keys, and the routing table's copy."""
NAMESPACED = {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["red", "blue"]}


def rules(role: dict[str, Any]) -> Rules:
    """The role's verbs, by API group and resource."""
    found: Rules = {}
    for rule in role["rules"]:
        (group,), (resource,) = rule["apiGroups"], rule["resources"]
        found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def roles(documents: list[dict[str, Any]], kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Roles by namespace and name."""
    return {(d["metadata"].get("namespace", ""), d["metadata"]["name"]): d for d in documents if d["kind"] == kind}


def test_cluster_scope(helm: Any) -> None:
    documents = helm.render({"rbac": {"aggregateClusterRoles": False}})
    (cluster_role,) = roles(documents, "ClusterRole").values()
    assert rules(cluster_role) == OPERATOR
    (lease_role,) = roles(documents, "Role").values()
    assert lease_role["metadata"]["namespace"] == "lifts"
    assert rules(lease_role) == LEASES
    assert operator_args(documents)[0] == "-A"


def test_namespaced_scope(helm: Any) -> None:
    documents = helm.render({**NAMESPACED, "rbac": {"scope": "namespaced", "aggregateClusterRoles": False}})
    assert not roles(documents, "ClusterRole")
    assert not roles(documents, "ClusterRoleBinding")
    found = roles(documents, "Role")
    assert {key: rules(role) for key, role in found.items()} == {
        ("red", "fleet-paternoster-operator"): OPERATOR,
        ("blue", "fleet-paternoster-operator"): OPERATOR,
        ("lifts", "fleet-paternoster-leader-election"): LEASES | RELEASES,
    }
    assert operator_args(documents)[:4] == ["-n", "red", "-n", "blue"]


def test_namespaced_scope_is_the_releases_own_namespace_by_default(helm: Any) -> None:
    documents = helm.render({"rbac": {"scope": "namespaced"}})
    assert {namespace for namespace, _ in roles(documents, "Role")} == {"lifts"}
    assert operator_args(documents)[:2] == ["-n", "lifts"]


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_every_binding_gives_its_role_to_the_operator(helm: Any, values: dict[str, Any]) -> None:
    documents = helm.render(values)
    subject = {"kind": "ServiceAccount", "name": "fleet-paternoster-operator", "namespace": "lifts"}
    bound = [d for d in documents if d["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bound) == (2 if not values else 3)
    for binding in bound:
        assert binding["subjects"] == [subject]
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        assert (binding["metadata"].get("namespace", ""), name) in roles(documents, kind)


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_nothing_is_a_wildcard(helm: Any, values: dict[str, Any]) -> None:
    documents = helm.render(values)
    for role in [*roles(documents, "Role").values(), *roles(documents, "ClusterRole").values()]:
        for rule in role["rules"]:
            assert "*" not in "".join([*rule["apiGroups"], *rule["resources"], *rule["verbs"]])
            assert "nonResourceURLs" not in rule


def test_root_keys_are_limited_to_their_names(helm: Any) -> None:
    documents = helm.render({**NAMESPACED, "keys": {"adminSecret": "mine"}})
    role = roles(documents, "Role")["lifts", "fleet-paternoster-leader-election"]
    (named,) = (
        rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["secrets"] and rule["verbs"] == ["get"]
    )
    assert named == ["fleet-paternoster-gateway-key", "mine"]
    assert "--admin-key-secret=lifts/mine" in operator_args(documents)
    assert "--gateway-key-secret=lifts/fleet-paternoster-gateway-key" in operator_args(documents)


def test_the_copy_of_the_routing_table_is_one_secret(helm: Any) -> None:
    documents = helm.render(NAMESPACED)
    role = roles(documents, "Role")["lifts", "fleet-paternoster-leader-election"]
    (named,) = (rule["resourceNames"] for rule in role["rules"] if "patch" in rule["verbs"])
    assert named == ["fleet-paternoster-routes"]
    assert "--routes-secret=lifts/fleet-paternoster-routes" in operator_args(documents)
    without = helm.render({**NAMESPACED, "gateway": {"enabled": False}})
    assert "fleet-paternoster-routes" not in str(without)


def test_without_policies_of_fleets_those_of_before_may_be_removed(helm: Any) -> None:
    documents = helm.render({"engine": {"networkPolicy": {"enabled": False}}})
    (role, *_) = (
        rules(role) for (_, name), role in roles(documents, "ClusterRole").items() if name.endswith("-operator")
    )
    assert role == {**OPERATOR, ("networking.k8s.io", "networkpolicies"): {"get", "delete"}}
    assert not any(arg.startswith("--network-policies") for arg in operator_args(documents))


def test_the_lease_and_the_record_of_names_are_limited_to_their_names(helm: Any) -> None:
    documents = helm.render()
    (role,) = roles(documents, "Role").values()
    limited = [rule["resourceNames"] for rule in role["rules"] if rule["verbs"] != ["create"]]
    shards = [f"fleet-paternoster-operator-shard-{number}" for number in range(1, MAX_SHARDS)]
    records = [f"fleet-paternoster-operator-{record}" for record in ("names", "shards")]
    assert limited == [["fleet-paternoster-operator", *shards], records]
    assert "--lease-name=fleet-paternoster-operator" in operator_args(documents)


def test_aggregated_roles(helm: Any) -> None:
    view: Rules = {
        ("paternoster.dev", "llmdeployments"): {"get", "list", "watch"},
        ("paternoster.dev", "llmdeployments/status"): {"get"},
        ("paternoster.dev", "llmdeployments/scale"): {"get"},
    }
    edit: Rules = {
        ("paternoster.dev", "llmdeployments"): {
            "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
        },
        ("paternoster.dev", "llmdeployments/status"): {"get"},
        ("paternoster.dev", "llmdeployments/scale"): {"get", "update", "patch"},
    }  # fmt: skip
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    found = {
        label.removeprefix(prefix): rules(role)
        for role in roles(helm.render(NAMESPACED), "ClusterRole").values()
        for label in role["metadata"]["labels"]
        if label.startswith(prefix)
    }
    assert found == {"view": view, "edit": edit, "admin": edit}


def operator_args(documents: list[dict[str, Any]]) -> list[str]:
    (operator,) = (
        d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "fleet-paternoster-operator"
    )
    args: list[str] = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    return args
