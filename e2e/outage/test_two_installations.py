"""A second release that watches the whole cluster, too: it leaves the first one's fleets alone, and both report it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.request import Request, urlopen

from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.outage import NAME, NAMESPACE, OPERATOR, fleet, holds_for, leader, settled, writers
from paternoster_e2e.release import CHART, SYSTEM, restricted_namespace

SECOND = "second"
SECOND_SYSTEM = "second-system"


@contextmanager
def second_release(kubectl: Kubectl) -> Iterator[str]:
    """A release of another name in a namespace of its own; yields its gateway's URL."""
    where = f"--namespace={SECOND_SYSTEM}"
    with restricted_namespace(kubectl, SECOND_SYSTEM):
        flags = ("--set=crds.enabled=false", "--set=operator.replicas=1", "--wait", "--timeout=120s")
        kubectl.helm("install", SECOND, str(CHART), where, *flags)
        try:
            spec = kubectl.get("service", f"{SECOND}-paternoster-gateway", SECOND_SYSTEM)["spec"]
            yield f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"
        finally:
            kubectl.helm("uninstall", SECOND, where, "--wait")


def warnings(kubectl: Kubectl, reason: str) -> list[Document]:
    """Events of that reason, as either operator posts them."""
    return [event for event in kubectl.list("events.events.k8s.io", NAMESPACE) if event["reason"] == reason]


def answers(gateway: str) -> int:
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    request = Request(f"{gateway}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return int(answer.status)


def test_a_second_installation_leaves_the_fleet_alone(kubectl: Kubectl, gateway: str, own_cluster: Cluster) -> None:
    settled(kubectl, 1)
    with second_release(kubectl) as second_gateway:
        first_name, second_name = f"{SYSTEM}/{OPERATOR}", f"{SECOND_SYSTEM}/{SECOND}-{OPERATOR}"
        (event,) = until(lambda: warnings(kubectl, "OwnedByAnotherInstallation"), "the second one reports it", 60)
        assert event["regarding"]["name"] == NAME
        assert f"{first_name} reconciles it" in event["note"]
        # The first one learns of it from the status, and warns in its log and by an event as well.
        contested = until(lambda: condition(fleet(kubectl), "Contested"), "the first one reports it", 60)
        assert (contested["status"], contested["reason"]) == ("True", "WatchedByAnotherInstallation")
        assert f"the installation {second_name} watches this LLMDeployment, too" in contested["message"]
        (event,) = until(lambda: warnings(kubectl, contested["reason"]), "its event", 60)
        assert event["note"] == contested["message"]
        assert fleet(kubectl)["status"]["installation"] == first_name
        assert fleet(kubectl)["status"]["otherInstallation"]["name"] == second_name
        assert contested["message"] in kubectl("logs", leader(kubectl), f"--namespace={SYSTEM}")
        began = datetime.now(UTC)
        generation = fleet(kubectl)["metadata"]["generation"]
        holds_for(
            10,
            lambda: kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"],
            "generation of the Deployment",
        )
        assert [answers(gateway) for _ in range(10)] == [200] * 10
        with urlopen(f"{second_gateway}/v1/models", timeout=60) as models:
            assert json.load(models)["data"] == []
        assert fleet(kubectl)["metadata"]["generation"] == generation
        assert SECOND not in "".join(writers(own_cluster.plane.audit_log, began, but=("leases", "llmdeployments")))
        for reason in ("OwnedByAnotherInstallation", contested["reason"]):
            assert len(warnings(kubectl, reason)) == 1
    settled(kubectl, 1)
