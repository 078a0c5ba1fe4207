"""The API server goes away and comes back; etcd hangs: the operator holds still and goes on afterwards."""

import signal
import time

from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.load import streams
from paternoster_e2e.outage import NAME, NAMESPACE, engine_pods, fleet, operator_pods, patch, restarts, settled

PAUSE_SECONDS = 20


def test_a_restarted_api_server_is_watched_again(kubectl: Kubectl, gateway: str, own_cluster: Cluster) -> None:
    settled(kubectl, 1)
    server = own_cluster.plane.api_server
    with streams(gateway, NAME, 2) as load:
        server.restart()
        server.until(own_cluster.plane.ready)
        patch(kubectl, {"concurrency": {"preemptionTargetPerThousand": 21}})
        settled(kubectl, 1)
    assert load.dropped == []


def test_a_hanging_etcd_scales_nothing(kubectl: Kubectl, gateway: str, own_cluster: Cluster) -> None:
    settled(kubectl, 1)
    operators = restarts(operator_pods(kubectl))
    engines = restarts(engine_pods(kubectl))
    generation = kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"]
    etcd = own_cluster.plane.etcd
    with streams(gateway, NAME, 2) as load:
        etcd.signal(signal.SIGSTOP)
        try:
            time.sleep(PAUSE_SECONDS)
        finally:
            etcd.signal(signal.SIGCONT)
        until(own_cluster.plane.ready, "the API server is back")
        patch(kubectl, {"concurrency": {"preemptionTargetPerThousand": 22}})
        settled(kubectl, 1)
    assert load.dropped == []
    assert restarts(operator_pods(kubectl)) == operators
    assert restarts(engine_pods(kubectl)) == engines
    assert kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"] == generation
    assert fleet(kubectl)["status"]["desiredReplicas"] == 1
