"""Helm upgrades and rollbacks replace operator and gateway under traffic, and no stream breaks."""

from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.load import streams
from paternoster_e2e.outage import NAME, engine_pods, settled
from paternoster_e2e.release import CHART, RELEASE, SYSTEM

COMPONENTS = "app.kubernetes.io/component in (operator,gateway)"


def names(kubectl: Kubectl) -> set[str]:
    return {pod["metadata"]["name"] for pod in kubectl.list("pods", SYSTEM, COMPONENTS)}


def templates(kubectl: Kubectl) -> set[str]:
    """Templates of the engines' pods; the pods themselves may come and go with the load."""
    return {pod["metadata"]["labels"]["pod-template-hash"] for pod in engine_pods(kubectl)}


def test_upgrade_and_rollback_under_traffic(kubectl: Kubectl, gateway: str) -> None:
    settled(kubectl, 1)
    engines = templates(kubectl)
    before = names(kubectl)
    with streams(gateway, NAME, 3) as load:
        until(lambda: load.completed > 0 or load.dropped, "a first stream", 120)
        annotations = [f"--set={part}.podAnnotations.upgraded=yes" for part in ("operator", "gateway")]
        options = [f"--namespace={SYSTEM}", "--wait", "--timeout=180s"]
        kubectl.helm("upgrade", RELEASE, str(CHART), "--reuse-values", *annotations, *options, timeout=200)
        until(lambda: not names(kubectl) & before, "every old pod is gone", 180)
        upgraded = names(kubectl)
        kubectl.helm("rollback", RELEASE, *options, timeout=200)
        until(lambda: not names(kubectl) & upgraded, "every upgraded pod is gone", 180)
        settled(kubectl, 1)
    assert load.dropped == []
    assert load.completed > 0
    assert templates(kubectl) == engines, "engines are not rolled for an upgrade"
