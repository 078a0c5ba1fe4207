"""Every value of the chart that changes what the operator may do, installed until a fleet is Ready."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import yaml

from paternoster_e2e.kubectl import Kubectl, condition, until
from paternoster_e2e.outage import NAME, NAMESPACE, fleet, fleet_document, settled
from paternoster_e2e.permissions import PERMISSION_VALUES
from paternoster_e2e.release import CHART, RELEASE, SYSTEM, install

pytestmark = pytest.mark.timeout(600)
ROLES = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
OFF = "engine.networkPolicy.enabled=false"


def wait_until_ready(kubectl: Kubectl) -> None:
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=150s", timeout=160)
    assert condition(fleet(kubectl), "Stalled") == {}


def find_policies(kubectl: Kubectl) -> list[str]:
    return [each["metadata"]["name"] for each in kubectl.list("networkpolicies", NAMESPACE)]


@contextmanager
def own_roles(kubectl: Kubectl, values: Sequence[str]) -> Iterator[None]:
    """Made by an administrator, where the chart makes none."""
    if "rbac.create=false" not in values:
        yield
        return
    options = [f"--set={value}" for value in values]
    rendered = kubectl.helm(
        "template", RELEASE, str(CHART), f"--namespace={SYSTEM}", *options, "--set=rbac.create=true"
    )
    roles = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] in ROLES]
    document = {"apiVersion": "v1", "kind": "List", "items": roles}
    kubectl.apply(document)
    try:
        yield
    finally:
        kubectl("delete", "--filename=-", document=document)


def test_policies_are_turned_off_and_on_again(kubectl: Kubectl, namespaces: None) -> None:
    install(kubectl)
    kubectl.apply(fleet_document())
    wait_until_ready(kubectl)
    assert find_policies(kubectl) == [NAME]
    for value, names in (("false", []), ("true", [NAME])):
        chosen = f"--set=engine.networkPolicy.enabled={value}"
        kubectl.helm("upgrade", RELEASE, str(CHART), f"--namespace={SYSTEM}", "--wait", "--timeout=120s", chosen)
        until(lambda names=names: find_policies(kubectl) == names, f"policies with {chosen}", 90)  # type: ignore[misc]
        settled(kubectl, 1)
        assert condition(fleet(kubectl), "Stalled") == {}
    events = kubectl.list("events.events.k8s.io", NAMESPACE)
    assert [each["note"] for each in events if each["reason"] == "ChildRemoved"] == [
        f"NetworkPolicy {NAME}: a setting has turned it off"
    ]
    pods = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=operator")
    assert {each["status"]["containerStatuses"][0]["restartCount"] for each in pods} == {0}


@pytest.mark.parametrize("values", PERMISSION_VALUES.values(), ids=PERMISSION_VALUES)
def test_a_fleet_becomes_ready(kubectl: Kubectl, namespaces: None, values: list[str]) -> None:
    with own_roles(kubectl, values):
        install(kubectl, *values)
        kubectl.apply(fleet_document())
        wait_until_ready(kubectl)
        assert find_policies(kubectl) == ([] if OFF in values else [NAME])
        pods = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=operator")
        assert {each["status"]["containerStatuses"][0]["restartCount"] for each in pods} == {0}
