"""An installation without a registry outside: images by digest, from a registry that all names begin with."""

import pytest

from paternoster_e2e.artifacts.images import version
from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import SYSTEM, install

MIRROR = "registry.invalid/mirror"
SECRET = "mirror"
pytestmark = pytest.mark.timeout(600)


def test_images_come_by_digest_from_a_mirror(own_cluster: Cluster, kubectl: Kubectl, namespaces: None) -> None:
    node = own_cluster.node
    assert node is not None
    values = [f"global.imageRegistry={MIRROR}", f"imagePullSecrets[0].name={SECRET}"]
    wanted = {}
    for name in ("operator", "gateway", "engine"):
        repository = f"{MIRROR}/paternoster-{name}"
        digest = node.mirror_image(f"docker.io/library/paternoster-{name}:{version()}", repository)
        values.append(f"{name}.image.digest={digest}")
        wanted[name] = f"{repository}@{digest}"
    account = ("--docker-server=registry.invalid", "--docker-username=u", "--docker-password=p")
    for namespace in (SYSTEM, NAMESPACE):
        kubectl("create", "secret", "docker-registry", SECRET, f"--namespace={namespace}", *account)
    install(kubectl, *values)
    kubectl.apply(fleet_document())
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=150s", timeout=160)
    pods = [*kubectl.list("pods", SYSTEM), *kubectl.list("pods", NAMESPACE)]
    found = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"] for pod in pods}
    assert {name: spec["containers"][0]["image"] for name, spec in found.items()} == wanted
    assert [spec["imagePullSecrets"] for spec in found.values()] == [[{"name": SECRET}]] * 3
