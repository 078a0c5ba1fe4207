"""From the packaged release before to the chart as it is, while a fleet answers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from paternoster_e2e.artifacts.images import version
from paternoster_e2e.artifacts.previous import CHART as PREVIOUS
from paternoster_e2e.artifacts.previous import TAG, previous_images
from paternoster_e2e.cluster.cluster import ROOT, Cluster
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.load import streams
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document, settled
from paternoster_e2e.release import CHART, RELEASE, SYSTEM, gateway_url

pytestmark = pytest.mark.timeout(900)
CRD = "llmdeployments.paternoster.dev"
COMPONENTS = ("operator", "gateway")


def images(kubectl: Kubectl) -> dict[str, int]:
    """Images of the pods of operator and gateway, with how many run each."""
    found: dict[str, int] = {}
    for pod in kubectl.list("pods", SYSTEM, f"app.kubernetes.io/component in ({','.join(COMPONENTS)})"):
        image = pod["spec"]["containers"][0]["image"]
        found[image] = found.get(image, 0) + 1
    return found


def crd(kubectl: Kubectl) -> dict[str, Any]:
    return kubectl.get("customresourcedefinition", CRD)


def test_upgrade_from_the_release_before(
    own_cluster: Cluster, kubectl: Kubectl, namespaces: None, tmp_path: Path
) -> None:
    assert own_cluster.node is not None
    for archive in previous_images(own_cluster.images, tmp_path):
        own_cluster.node.import_image(archive)
    options = [f"--namespace={SYSTEM}", "--wait", "--timeout=180s"]
    # Of 0.1.0 only operator and gateway are kept: it starts engines of now.
    tags = [f"--set={name}.image.tag={TAG}" for name in COMPONENTS] + [f"--set=engine.image.tag={version()}"]
    # The CRD of a test before is there still, and its fields are that one's.
    kubectl("delete", "customresourcedefinition", CRD, "--ignore-not-found")
    kubectl.helm("install", RELEASE, str(PREVIOUS), "--take-ownership", *options, *tags, timeout=200)
    assert crd(kubectl)["metadata"]["labels"]["helm.sh/chart"] == "paternoster-0.1.0"
    fleet = fleet_document()
    # as an upgrade may roll the engines
    fleet["spec"]["autoscaling"]["minReplicas"] = 2
    kubectl.apply(fleet)
    settled(kubectl, 2)
    assert images(kubectl) == {f"paternoster-operator:{TAG}": 1, f"paternoster-gateway:{TAG}": 2}
    with streams(gateway_url(kubectl), NAME, 2) as load:
        until(lambda: load.completed > 0 or load.dropped, "a first stream", 120)
        unset = [f"--set={name}.image.tag=" for name in (*COMPONENTS, "engine")]
        kubectl.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", *unset, *options, timeout=200)
        now = {f"paternoster-{name}:{version()}": 2 for name in COMPONENTS}
        until(lambda: images(kubectl) == now, "every pod of before is gone", 180)
        before = load.completed
        until(lambda: load.completed > before or load.dropped, "a stream after the upgrade", 120)
        settled(kubectl, 2)
    assert load.dropped == []
    described = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert crd(kubectl)["metadata"]["labels"]["helm.sh/chart"] == f"paternoster-{described['version']}"
    (wanted,) = yaml.safe_load((ROOT / "crds" / "paternoster.dev_llmdeployments.yaml").read_text())["spec"]["versions"]
    (served,) = crd(kubectl)["spec"]["versions"]
    assert served["schema"] == wanted["schema"], "the resource is the chart's"
    assert kubectl.get("llmd", NAME, NAMESPACE)["spec"]["autoscaling"]["minReplicas"] == 2
