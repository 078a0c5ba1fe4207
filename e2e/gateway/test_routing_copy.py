"""A gateway that starts while no operator is there serves from the copied routing table, and reports its age."""

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paternoster_contract.routing_copy import FIELD
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.outage import scale_operator
from paternoster_e2e.release import CHART, RELEASE, SYSTEM

pytestmark = pytest.mark.timeout(900)

SECRET = f"{RELEASE}-routes"
GATEWAY_PODS = "app.kubernetes.io/component=gateway"
STATS_PORT = 8081


def copied(kubectl: Kubectl) -> str:
    """The packed table as the Secret has it; empty before an operator wrote one."""
    data: str = kubectl.get("secret", SECRET, SYSTEM).get("data", {}).get(FIELD, "")
    return data


def gateway_pod(kubectl: Kubectl, *others: str) -> str:
    """Name of the one gateway pod that is ready and none of ``others``; empty while there is none."""
    pods = [pod for pod in kubectl.list("pods", SYSTEM, GATEWAY_PODS) if "deletionTimestamp" not in pod["metadata"]]
    names = [pod["metadata"]["name"] for pod in pods if condition(pod, "Ready").get("status") == "True"]
    return names[0] if len(names) == 1 and names[0] not in others else ""


def gateway_answer(kubectl: Kubectl, pod: str, path: str) -> str:
    return kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{STATS_PORT}/proxy{path}")


def table(kubectl: Kubectl, pod: str) -> dict[str, Any]:
    """What the gateway says of its routing table."""
    found: Document = json.loads(gateway_answer(kubectl, pod, "/ready"))
    return dict(found["routing_table"])


def metrics(kubectl: Kubectl, pod: str) -> dict[str, float]:
    return {
        sample.name.removeprefix("paternoster_gateway_routing_table_"): sample.value
        for family in text_string_to_metric_families(gateway_answer(kubectl, pod, "/metrics"))
        for sample in family.samples
        if sample.name.startswith("paternoster_gateway_routing_table_")
    }


def serves_from_copy(fleet: Fleet, pod: str) -> float:
    """Check that it answers, and what it says; returns the copy's age in seconds."""
    reported, numbers = table(fleet.kubectl, pod), metrics(fleet.kubectl, pod)
    assert reported["from"] == "copy"
    assert numbers["from_copy"] == 1
    assert 0 < reported["age_seconds"] <= numbers["age_seconds"]
    assert fleet.chat().status_code == 200
    return float(reported["age_seconds"])


def test_a_gateway_without_an_operator_serves_from_the_copy(fleet: Fleet) -> None:
    kubectl = fleet.kubectl
    until(lambda: copied(kubectl), f"the Secret {SECRET} holds a table", 60)
    first = until(lambda: gateway_pod(kubectl), "a gateway", 60)
    assert table(kubectl, first)["from"] == "operator"
    assert metrics(kubectl, first)["from_copy"] == 0

    scale_operator(kubectl, 0)
    copied_table = copied(kubectl)
    kubectl("delete", "pod", first, f"--namespace={SYSTEM}", "--wait=false")
    second = until(lambda: gateway_pod(kubectl, first), "another gateway is ready", 120)
    age = serves_from_copy(fleet, second)

    # An upgrade whose operator fits on no node: what was written before it stays, and is all that a gateway has.
    flags = ["--reuse-values", f"--namespace={SYSTEM}", "--timeout=180s"]
    upgrade = ["--set=operator.nodeSelector.example\\.com/nowhere=yes", "--set=gateway.podAnnotations.upgraded=yes"]
    kubectl.helm("upgrade", RELEASE, str(CHART), *flags, *upgrade, timeout=200)
    third = until(lambda: gateway_pod(kubectl, first, second), "the upgraded gateway is ready", 180)
    assert copied(kubectl) == copied_table
    assert serves_from_copy(fleet, third) > age

    kubectl.helm("rollback", RELEASE, f"--namespace={SYSTEM}", "--wait", "--timeout=180s", timeout=200)
    scale_operator(kubectl, 1)
    fourth = until(lambda: gateway_pod(kubectl, third), "the gateway of before is ready", 180)
    until(lambda: table(kubectl, fourth)["from"] == "operator", "it follows the operator", 60)
    assert metrics(kubectl, fourth)["from_copy"] == 0
    until(lambda: copied(kubectl) != copied_table, "the operator confirms its copy", 90)
    assert fleet.chat().status_code == 200
