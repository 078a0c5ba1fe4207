"""The cluster of the tests: no file that names a pod's network namespace stays on the machine."""

from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.cluster.network import POD_NAMESPACES
from paternoster_e2e.kubectl import Kubectl, until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "namespace"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "idle", "image": "paternoster-gateway:0.2.0", "command": ["sleep", "infinity"]}],
    },
}


def test_network_namespaces_of_pods_are_named_on_a_mount_of_the_cluster(own_cluster: Cluster) -> None:
    kubectl = Kubectl(own_cluster.environment)
    kubectl.apply(POD)
    until(lambda: kubectl.get("pod", "namespace")["status"]["phase"] == "Running", "the pod runs", 120)
    assert list(POD_NAMESPACES.glob("cni-*"))
    assert POD_NAMESPACES.is_mount()
    kubectl("delete", "pod", "namespace")
