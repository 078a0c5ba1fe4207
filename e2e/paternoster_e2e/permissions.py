"""What the chart lets the operator do, taken apart into single permissions, and given to an account of a test."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.kubectl import Document, Kubectl, until

CHART = ROOT / "charts" / "paternoster"
RBAC = "rbac.authorization.k8s.io"
WATCHED = "watchNamespaces={outages}"
PERMISSION_VALUES = {
    "policies": ["engine.networkPolicy.enabled=false"],
    "gateway": ["gateway.enabled=false"],
    "namespaced": ["rbac.scope=namespaced", WATCHED],
    "namespaced-policies-gateway": [
        "rbac.scope=namespaced", WATCHED, "engine.networkPolicy.enabled=false", "gateway.enabled=false",
    ],
    "roles": ["rbac.create=false", "rbac.aggregateClusterRoles=false"],
    "account": ["operator.serviceAccount.create=false", "gateway.serviceAccount.create=false"],
    "keys": ["keys.gatewaySecret=mine", "keys.adminSecret=mine-too", "rbac.scope=namespaced", WATCHED],
}  # fmt: skip
"""Values of the chart that change what the operator may do, as a user would set them together."""


@dataclass(frozen=True, order=True)
class Permission:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()
    """The only objects it is for; empty for all."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")

    @property
    def refusal(self) -> str:
        """How the API server says that it is missing."""
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}"'


@dataclass(frozen=True)
class ChartPermissions:
    """Permissions of one rendering: what the operator may do where it watches, and for its lease."""

    operator: tuple[Permission, ...]
    lease: tuple[Permission, ...]

    @property
    def lease_name(self) -> str:
        return next(permission.names[0] for permission in self.lease if permission.names)

    def without(self, left_out: Permission | None) -> "ChartPermissions":
        def without(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
            return tuple(permission for permission in permissions if permission != left_out)

        return ChartPermissions(without(self.operator), without(self.lease))


def chart_permissions(kubectl: Kubectl, scope: str) -> ChartPermissions:
    """Render permissions with Helm; ``scope`` is ``namespaced`` or ``cluster``."""
    values = f"--set=rbac.scope={scope},rbac.aggregateClusterRoles=false"
    rendered = kubectl.helm("template", "fleet", str(CHART), "--namespace=lifts", values)
    documents = [document for document in yaml.safe_load_all(rendered) if document]
    roles = [document for document in documents if document["kind"] in ("ClusterRole", "Role")]
    (lease,) = (role for role in roles if role["metadata"]["name"].endswith("-leader-election"))
    (operator,) = (role for role in roles if role is not lease)
    return ChartPermissions(_permissions(operator), _permissions(lease))


def grant(kubectl: Kubectl, account: tuple[str, str], permissions: Sequence[Permission], namespace: str | None) -> None:
    """Make the service account ``account`` (namespace, name); it may do this in ``namespace``, or everywhere."""
    home, name = account
    kind = "Role" if namespace else "ClusterRole"
    place = {"namespace": namespace} if namespace else {}
    role = "-".join(account)  # names of cluster roles are the whole cluster's
    metadata = {"name": role, **place}
    rules = [
        {"apiGroups": [p.group], "resources": [p.resource], "verbs": [p.verb]}
        | ({"resourceNames": list(p.names)} if p.names else {})
        for p in permissions
    ]
    items: list[Document] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}},
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        },
    ]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    last = permissions[-1]
    what = "/".join([f"{last.resource}.{last.group}".rstrip("."), *last.names[:1]])
    words = ["auth", "can-i", last.verb, what, f"--as=system:serviceaccount:{home}:{name}"]
    scope = f"--namespace={namespace}" if namespace else "--all-namespaces"
    until(lambda: kubectl(*words, scope), "the authorizer knows the role")


def revoke(kubectl: Kubectl, account: tuple[str, str]) -> None:
    """Remove the account's cluster roles; what lies in a namespace goes with it."""
    kubectl("delete", "clusterrolebinding,clusterrole", "-".join(account), "--ignore-not-found")


def _permissions(role: dict[str, Any]) -> tuple[Permission, ...]:
    return tuple(
        Permission(group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )
