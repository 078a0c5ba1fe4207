"""Status in words, and as kstatus reads it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from paternoster_operator.api.status_types import LLMDeploymentStatus
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observe import DeploymentView, Observed, PodView
from paternoster_operator.scaling.decision import Decision, LawState, LoopDecision, Reason
from paternoster_operator.scaling.signals import Signals
from paternoster_operator.status import MAX_DECISIONS, build_status, invalid_status

Resource = Callable[..., LLMDeployment]
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def kstatus(document: Mapping[str, Any]) -> str:
    """The rules of kstatus' ``Compute`` for a custom resource, in their order."""
    metadata, status = document["metadata"], document.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    if "Ready" in conditions:
        return "Current" if conditions["Ready"] == "True" else "InProgress"
    return "Current"


def pod(name: str, *, ready: bool = True, waiting: str | None = None, deleting: bool = False) -> PodView:
    return PodView(name, "http://x", "Running" if ready else "Pending", ready, deleting, 0, waiting, "why")


def deployment(replicas: int, *, updated: int | None = None, failed: bool = False) -> DeploymentView:
    return DeploymentView(1, 1, replicas, replicas, replicas if updated is None else updated, replicas, failed, "late")


def status_of(
    resource: LLMDeployment, observed: Observed, *, replicas: int = 2, made: Decision | None = None, now: str = NOW,
    age: float = 1e9, **signals: Any
) -> dict[str, Any]:  # fmt: skip
    decision = made or Decision(None, None, LawState(replicas, 8, since=0))
    defaults = {"ready": len(observed.serving), "fresh": bool(observed.serving), "capacity": 16}
    seen = Signals(**{**defaults, **signals})
    return build_status(resource, observed, seen, decision, decision, now, age_of_load=age, endpoint="http://door")


CASES = [
    ("starting", Observed(None, ()), "InProgress", "Unknown", "ModelLoading"),
    ("loading", Observed(deployment(2), (pod("a", ready=False),)), "InProgress", "Unknown", "ModelLoading"),
    ("one of two", Observed(deployment(2), (pod("a"), pod("b", ready=False))), "InProgress", "True", "Minimum"),
    ("settled", Observed(deployment(2), (pod("a"), pod("b"))), "Current", "True", "MinimumReplicasAvailable"),
    ("rolling", Observed(deployment(2, updated=1), (pod("a"), pod("b"))), "InProgress", "True", "Minimum"),
    ("draining", Observed(deployment(2), (pod("a"), pod("b"), pod("c", deleting=True))), "InProgress", "True", "Min"),
    (
        "no image",
        Observed(deployment(2), (pod("a", ready=False, waiting="ImagePullBackOff"),)),
        "Failed",
        "False",
        "Im",
    ),
    ("crashes", Observed(deployment(2), (pod("a", ready=False, waiting="CrashLoopBackOff"),)), "Failed", "False", "En"),
    ("no node", Observed(deployment(2), (pod("a", ready=False, waiting="Unschedulable"),)), "Failed", "False", "Unsch"),
    ("too late", Observed(deployment(2, failed=True), (pod("a", ready=False),)), "Failed", "False", "ProgressDeadline"),
]


@pytest.mark.parametrize(("observed", "whole", "ready", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_conditions(resource: Resource, observed: Observed, whole: str, ready: str, reason: str) -> None:
    fleet = resource()
    status = status_of(fleet, observed)
    LLMDeploymentStatus.model_validate(status)
    assert kstatus({"metadata": {"generation": 3}, "status": status}) == whole or (reason == "ModelLoading")
    first = status["conditions"][0]
    assert (first["type"], first["status"]) == ("Ready", ready)
    assert first["reason"].startswith(reason) or reason == "ModelLoading"
    assert kstatus({"metadata": {"generation": 4}, "status": status}) == "InProgress", "a newer spec"
    kinds = [condition["type"] for condition in status["conditions"]]
    assert len(kinds) == len(set(kinds))


def test_times_change_with_the_status_of_a_condition_only(resource: Resource) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    fleet = resource()
    fleet.status = status_of(fleet, settled)
    again = status_of(fleet, settled, now=LATER)
    assert again["conditions"] == fleet.status["conditions"]
    stale = status_of(fleet, settled, now=LATER, fresh=False, stale_pods=("a",))
    times = {c["type"]: c["lastTransitionTime"] for c in stale["conditions"]}
    assert times["MetricsFresh"] == LATER
    assert times["Ready"] == NOW


def test_load_is_written_when_it_moved_or_grew_old(resource: Resource) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    fleet = resource()
    fleet.status = status_of(fleet, settled, running=100)
    assert status_of(fleet, settled, running=105, now=LATER, age=5)["load"] == fleet.status["load"]
    assert status_of(fleet, settled, running=120, now=LATER, age=5)["load"]["runningRequests"] == 120
    assert status_of(fleet, settled, running=105, now=LATER, age=61)["load"]["runningRequests"] == 105


def test_the_history_is_bounded_and_does_not_repeat_itself(resource: Resource) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    fleet = resource()

    def made(target: int, reason: Reason) -> Decision:
        word = LoopDecision("Replicas", 2, target, target, reason, "said")
        return Decision(word, None, LawState(target, 8, since=0))

    for _ in range(5):
        fleet.status = status_of(fleet, settled, made=made(2, Reason.WITHIN_TOLERANCE))
    assert len(fleet.status["decisions"]) == 1, "holding for the same reason is told once"
    fleet.status = status_of(fleet, settled, made=made(2, Reason.STABILIZING))
    for target in range(3, 20):
        fleet.status = status_of(fleet, settled, made=made(target, Reason.DEMAND_ABOVE_TARGET))
    decisions = fleet.status["decisions"]
    assert len(decisions) == MAX_DECISIONS
    assert (decisions[0]["to"], decisions[0]["action"], decisions[0]["applied"]) == (19, "Up", True)
    assert fleet.status["lastScaleTime"] == NOW


def test_limits_are_a_condition(resource: Resource) -> None:
    word = LoopDecision("Replicas", 2, 2, 5, Reason.MAX_REPLICAS, "as many as allowed", (Reason.MAX_REPLICAS,))
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    status = status_of(resource(), settled, made=Decision(word, None, LawState(2, 8, since=0)))
    limited = next(c for c in status["conditions"] if c["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "MaxReplicas")


def test_an_invalid_spec_names_its_faults(resource: Resource) -> None:
    status = invalid_status(4, {"replicas": 2}, ["spec.a: wrong", "spec.b: wrong"], NOW)
    assert kstatus({"metadata": {"generation": 4}, "status": status}) == "Failed"
    assert status["replicas"] == 2
    assert status["conditions"][0]["message"] == "spec.a: wrong; spec.b: wrong"
