"""Operators come and go; requests do not notice, and nothing is scaled by surprise."""

import time

from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.load import streams
from paternoster_e2e.outage import (
    NAME,
    NAMESPACE,
    engine_pods,
    fleet,
    fleet_document,
    holds_for,
    kill_operators,
    patch,
    scale_operator,
    settled,
)

AWAY_SECONDS = 120


def test_killed_in_the_middle_of_a_rollout(kubectl: Kubectl, gateway: str) -> None:
    settled(kubectl, 1)
    before = {pod["metadata"]["name"] for pod in engine_pods(kubectl)}
    with streams(gateway, NAME, 2) as load:
        patch(kubectl, {"engine": {"maxModelLen": 640}})
        until(lambda: {pod["metadata"]["name"] for pod in engine_pods(kubectl)} - before, "a new pod")
        kill_operators(kubectl)
        until(lambda: not before & {pod["metadata"]["name"] for pod in engine_pods(kubectl)}, "old pods gone", 180)
        settled(kubectl, 1)
    assert load.dropped == []
    assert load.completed > 0


def test_killed_in_the_middle_of_scaling(kubectl: Kubectl, gateway: str) -> None:
    settled(kubectl, 1)
    with streams(gateway, NAME, 2) as load:
        patch(kubectl, {"autoscaling": {"minReplicas": 2}})
        until(lambda: len(engine_pods(kubectl)) == 2, "a second pod")
        kill_operators(kubectl)
        settled(kubectl, 2)
        patch(kubectl, {"autoscaling": {"minReplicas": 1}})
        until(lambda: fleet(kubectl)["status"]["desiredReplicas"] == 1, "the way down begins", 120)
        kill_operators(kubectl)
        settled(kubectl, 1)
    assert load.dropped == []


def test_away_under_load(kubectl: Kubectl, gateway: str) -> None:
    settled(kubectl, 1)
    kubectl.apply(fleet_document("doomed"))
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", "llmd/doomed", "--timeout=120s")
    with streams(gateway, NAME, 3) as load:
        until(lambda: load.completed > 0 or load.dropped, "a first stream", 120)
        deployment = kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"]
        scale_operator(kubectl, 0)
        left = time.monotonic()
        kubectl("delete", "llmd", "doomed", f"--namespace={NAMESPACE}", "--wait=false")
        until(lambda: not engine_pods(kubectl, "doomed"), "the deleted fleet is gone without an operator", 90)
        time.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - left)))
        scale_operator(kubectl, 2)
        holds_for(30, lambda: kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"], "Deployment")
        assert kubectl.get("deployment", NAME, NAMESPACE)["metadata"]["generation"] == deployment
        settled(kubectl, 1)
    assert load.dropped == []
    assert load.completed > 0
    assert not engine_pods(kubectl, "doomed")


def test_last_a_fleet_leaves_nothing(kubectl: Kubectl, gateway: str) -> None:
    kubectl.apply(fleet_document("brief"))
    until(lambda: engine_pods(kubectl, "brief"), "a pod")
    kubectl("delete", "llmd", "brief", f"--namespace={NAMESPACE}")
    until(lambda: not engine_pods(kubectl, "brief"), "its pods are gone", 90)
    assert engine_pods(kubectl), "the other fleet stays"
