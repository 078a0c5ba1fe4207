"""Two operators: one acts, the other takes over, and never do both."""

from datetime import UTC, datetime

from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.load import streams
from paternoster_e2e.outage import NAME, leader, operator_pods, patch, settled, writers
from paternoster_e2e.release import SYSTEM

HANDOVER_SECONDS = 20
"""What is promised: a lease of 15 s and a look every 2 s, with room for the machine."""


def test_the_other_takes_over(kubectl: Kubectl, gateway: str, own_cluster: Cluster) -> None:
    began = datetime.now(UTC)
    settled(kubectl, 1)
    until(lambda: len(operator_pods(kubectl)) == 2, "two operators")
    first = until(lambda: leader(kubectl), "somebody leads")
    with streams(gateway, NAME, 1) as load:
        words = ["delete", "pod", first, f"--namespace={SYSTEM}", "--grace-period=0", "--force"]
        kubectl(*words)
        second = until(lambda: leader(kubectl) not in ("", first) and leader(kubectl), "a new leader", HANDOVER_SECONDS)
        patch(kubectl, {"concurrency": {"preemptionTargetPerThousand": 21}})
        settled(kubectl, 1)
    assert load.dropped == []
    assert second != first
    order = writers(own_cluster.plane.audit_log, began)
    assert order[-1] == second
    assert len(order) == len(set(order)), f"two operators wrote in turns: {order}"


def test_one_field_manager_owns_what_the_operator_sets(kubectl: Kubectl, gateway: str) -> None:
    words = ["get", "deployment", NAME, "--namespace=outages", "--show-managed-fields", "--output=json"]
    found = kubectl(*words)
    assert found.count('"manager": "paternoster"') == 1
    assert '"f:template"' in found
