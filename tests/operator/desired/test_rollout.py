"""How a rollout goes on where what the new replica needs is held by the one that it is to replace."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.conftest import manifest_document

from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, TOKEN_BUDGET, Decision
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.desired.rollout import Strategy, choose_strategy, find_blocking
from paternoster_operator.observed import Observed
from paternoster_operator.pods.events import PodEvent
from paternoster_operator.report.conditions import Access, find_conditions

Resource = Callable[..., LLMDeployment]
NOW = "2026-11-21T12:01:00Z"
GPU = "nvidia.com/gpu"
FULL = f"0/2 nodes are available: 2 Insufficient {GPU}. preemption: 0/2 nodes are available."
QUOTA = (
    'pods "ride-b-2" is forbidden: exceeded quota: q, requested: pods=1,requests.nvidia.com/gpu=1, '
    "used: pods=1,requests.nvidia.com/gpu=1, limited: pods=1,requests.nvidia.com/gpu=1"
)


def spec(gpus: str = "1", **fields: Any) -> dict[str, Any]:
    engine = {
        "name": "engine",
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"requests": {GPU: gpus, "cpu": "1"}},
    }
    return {"containers": [engine], **fields}


def pod(name: str, template: str, *, deleting: bool = False, events: Any = (), **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"pod-template-hash": template}, "creationTimestamp": "2026-11-21T11:00:00Z"}
    if deleting:
        metadata["deletionTimestamp"] = NOW
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    fields.setdefault("tolerations", [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])
    return {"metadata": metadata, "spec": {**spec(), "nodeName": "north", **fields}, "status": status}


def unscheduled(name: str, template: str, message: str = FULL, **fields: Any) -> dict[str, Any]:
    found = pod(name, template, **fields)
    del found["spec"]["nodeName"]
    found["metadata"]["creationTimestamp"] = "2026-11-21T12:00:00Z"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found["status"] = {"phase": "Pending", "conditions": [condition]}
    return found


def deployment(
    replicas: int, updated: int, *, wanted: int = 1, surge: int = 1, refused: str = "", **template: Any
) -> dict[str, Any]:
    conditions = [{"type": "ReplicaFailure", "status": "True", "message": refused}] if refused else []
    return {
        "metadata": {"generation": 2},
        "spec": {
            "replicas": wanted,
            "strategy": {"rollingUpdate": {"maxSurge": surge}},
            "template": {"spec": {**spec(), **template}},
        },
        "status": {
            "observedGeneration": 2,
            "replicas": replicas,
            "updatedReplicas": updated,
            "conditions": conditions,
        },
    }


def rolling(*new: dict[str, Any], updated: int = 1, **fields: Any) -> Observed:
    """One old replica that serves, and new ones."""
    return Observed.from_cluster(deployment(1 + updated, updated, **fields), [pod("ride-a-1", "a"), *new])


def conditions(resource: LLMDeployment, observed: Observed, replicas: int = 1) -> dict[str, Any]:
    decision = Decision({}, {REPLICAS: replicas, LIVE_CAP: 8, TOKEN_BUDGET: 0})
    signals = Signals(ready=len(observed.serving), fresh=True)
    found = find_conditions(resource, observed, signals, decision, NOW, Access(("ride",)))
    return {condition.type: condition for condition in found}


def test_by_default_a_rollout_interrupts_nothing(resource: Resource) -> None:
    assert choose_strategy(resource().spec, 2, Observed(None, ())) == Strategy(1, 0)
    assert choose_strategy(resource().spec, 1, rolling(pod("ride-b-1", "b"))) == Strategy(1, 0)


@pytest.mark.parametrize(
    ("given_by_user", "expected"),
    [
        ({"maxSurge": 0}, (0, 1)),
        ({"maxSurge": 2}, (2, 0)),
        ({"maxSurge": 2, "maxUnavailable": 1}, (2, 1)),
        ({"maxUnavailable": 2}, (1, 2)),
        ({"maxUnavailable": 0}, (1, 0)),
        ({"maxSurge": 0, "maxUnavailable": 3}, (0, 3)),
    ],
)
def test_what_the_manifest_says_holds(resource: Resource, given_by_user: dict[str, int], expected: Any) -> None:
    found = choose_strategy(resource(rollout=given_by_user).spec, 4, Observed(None, ()))
    assert (found.max_surge, found.max_unavailable, found.why) == (*expected, "")


def test_on_full_devices_the_old_replica_ends_first(resource: Resource) -> None:
    fleet, observed = resource(), rolling(unscheduled("ride-b-1", "b"))
    found = choose_strategy(fleet.spec, 1, observed)
    assert found == Strategy(0, 1, f"a new replica needs {GPU}, which ride-a-1 holds")
    conditions_by_type = conditions(fleet, observed)
    assert "Stalled" not in conditions_by_type
    assert (conditions_by_type["Reconciling"].reason, conditions_by_type["Ready"].status) == ("RollingOut", "True")
    assert (
        conditions_by_type["Reconciling"].message
        == f"1 of 1 replicas updated; old replicas end before new ones start: {found.why}"
    )


def test_a_rollout_ends_as_it_began(resource: Resource) -> None:
    """The second of two old replicas is replaced in the same way, while the first new one loads its model."""
    loading = pod("ride-b-1", "b")
    loading["metadata"]["creationTimestamp"] = "2026-11-21T12:00:00Z"
    loading["status"]["conditions"] = []
    going_on = Observed.from_cluster(deployment(2, 1, wanted=2, surge=0), [pod("ride-a-1", "a"), loading])
    assert choose_strategy(resource().spec, 2, going_on).max_surge == 0
    done = Observed.from_cluster(deployment(2, 2, wanted=2, surge=0), [pod("ride-b-2", "b"), loading])
    assert choose_strategy(resource().spec, 2, done) == Strategy(1, 0)


def test_an_explicit_surge_wins_and_the_way_out_is_told(resource: Resource) -> None:
    for rollout in ({"maxSurge": 1}, {"maxUnavailable": 0}):
        fleet, observed = resource(rollout=rollout), rolling(unscheduled("ride-b-1", "b"))
        assert choose_strategy(fleet.spec, 1, observed) == Strategy(1, 0)
        conditions_by_type = conditions(fleet, observed)
        assert conditions_by_type["Stalled"].reason == "InsufficientGPUs"
        advice = f"; ride-a-1 holds {GPU}: with rollout.maxSurge: 0 it would end first"
        assert conditions_by_type["Stalled"].message.endswith(advice)
        assert conditions_by_type["Ready"].status == "True"


def test_while_the_old_replica_finishes_its_requests_nothing_is_in_the_way(resource: Resource) -> None:
    observed = Observed.from_cluster(
        deployment(1, 1, surge=0), [pod("ride-a-1", "a", deleting=True), unscheduled("ride-b-1", "b")]
    )
    conditions_by_type = conditions(resource(), observed)
    assert "Stalled" not in conditions_by_type
    assert (conditions_by_type["Ready"].status, conditions_by_type["Ready"].reason) == ("Unknown", "Draining")
    assert "ride-b-1: waits until ride-a-1 has finished its requests" in conditions_by_type["Ready"].message
    gone = Observed.from_cluster(deployment(1, 1, surge=0), [unscheduled("ride-b-1", "b")])
    assert conditions(resource(), gone)["Stalled"].reason == "InsufficientGPUs"


NOT_IN_ITS_PLACE = {
    "more devices": unscheduled("ride-b-1", "b", **spec("2")),
    "another node": unscheduled("ride-b-1", "b", nodeSelector={"zone": "south"}),
    "another volume": unscheduled(
        "ride-b-1", "b", volumes=[{"name": "m", "persistentVolumeClaim": {"claimName": "other"}}]
    ),
    "tolerates less": unscheduled("ride-b-1", "b", tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "cordoned": unscheduled(
        "ride-b-1", "b", f"0/2 nodes are available: 1 Insufficient {GPU}, 1 node(s) were unschedulable."
    ),
    "node under pressure": unscheduled(
        "ride-b-1",
        "b",
        f"0/2 nodes are available: 1 Insufficient {GPU}, 1 node(s) had untolerated taint "
        "{node.kubernetes.io/disk-pressure: }.",
    ),
    "no selector matches": unscheduled(
        "ride-b-1", "b", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    ),
    "unheard of": unscheduled("ride-b-1", "b", "a text of tomorrow"),
}


@pytest.mark.parametrize("new", NOT_IN_ITS_PLACE.values(), ids=NOT_IN_ITS_PLACE.keys())
def test_an_old_replica_is_not_given_up_for_nothing(resource: Resource, new: dict[str, Any]) -> None:
    observed = rolling(new)
    assert find_blocking(observed) is None
    assert choose_strategy(resource().spec, 1, observed) == Strategy(1, 0)
    assert "rollout.maxSurge" not in conditions(resource(), observed)["Stalled"].message


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", "cpu"),
        (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
            "a port of the node",
        ),
        (
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
            "the node, by anti-affinity",
        ),
        ("0/1 nodes are available: 1 Too many pods.", "a place on the node"),
        ("0/1 nodes are available: 1 cannot allocate all claims.", "the devices of its claim"),
    ],
)
def test_whatever_one_of_its_kind_may_hold(message: str, what: str) -> None:
    found = find_blocking(rolling(unscheduled("ride-b-1", "b", message)))
    assert found is not None
    assert (found.pod, found.what) == ("ride-a-1", what)


def test_a_quota_that_is_full_with_the_fleet_itself(resource: Resource) -> None:
    observed = rolling(updated=0, refused=QUOTA)
    found = choose_strategy(resource().spec, 1, observed)
    assert (found.max_surge, found.max_unavailable) == (0, 1)
    assert "the quota of pods and requests.nvidia.com/gpu" in found.why
    larger = rolling(updated=0, refused=QUOTA, **spec("2"))
    assert choose_strategy(resource().spec, 1, larger) == Strategy(1, 0)
    explicit = conditions(resource(rollout={"maxSurge": 1}), observed)["Stalled"]
    assert (explicit.reason, "rollout.maxSurge: 0" in explicit.message) == ("QuotaExceeded", True)


def test_a_volume_that_the_old_replica_has_attached(resource: Resource) -> None:
    new = unscheduled("ride-b-1", "b")
    new["spec"]["nodeName"] = "south"
    new["status"] = {"phase": "Pending"}
    used = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) ride-a-1'
    event = PodEvent("FailedAttachVolume", used, "", 1, NOW)
    observed = rolling(new).with_fields({"ride-b-1": {"events": (event,)}})
    assert choose_strategy(resource().spec, 1, observed).why == "a new replica needs a volume, which ride-a-1 holds"
    other = PodEvent("FailedAttachVolume", used.replace("ride-a-1", "web-1"), "", 1, NOW)
    assert choose_strategy(
        resource().spec, 1, rolling(new).with_fields({"ride-b-1": {"events": (other,)}})
    ) == Strategy(1, 0)


class TestBudget:
    @pytest.mark.parametrize(
        ("paid", "replicas", "rollout", "expected"),
        [
            (2, 2, {}, (0, 1)),
            (3, 2, {}, (1, 0)),
            (3, 2, {"maxSurge": 2}, (1, 0)),
            (2, 2, {"maxSurge": 1}, (0, 1)),
            (2, 2, {"maxSurge": 1, "maxUnavailable": 0}, (0, 1)),
            (2, 0, {}, (1, 0)),
        ],
    )
    def test_the_surge_counts(
        self, resource: Resource, paid: int, replicas: int, rollout: dict[str, int], expected: Any
    ) -> None:
        gpus = {"gpu": {"count": 2}}
        fleet = resource(resources=gpus, budget={"maxGPUs": 2 * paid + 1}, replicas=replicas, rollout=rollout)
        found = choose_strategy(fleet.spec, replicas, Observed(None, ()))
        assert (found.max_surge, found.max_unavailable) == expected
        assert bool(found.why) == (rollout.get("maxSurge", 1) != expected[0])

    def test_the_condition_names_it(self, resource: Resource) -> None:
        fleet = resource(resources={"gpu": {"count": 1}}, budget={"maxGPUs": 1})
        conditions_by_type = conditions(fleet, rolling(updated=0, surge=0))
        assert conditions_by_type["Reconciling"].message.endswith(
            "before new ones start: budget.maxGPUs pays for 1 replicas"
        )


counts = st.none() | st.integers(0, 4)


@given(counts, counts, st.integers(0, 6), st.none() | st.integers(0, 6), st.booleans())
def test_never_beyond_the_budget_and_never_stuck(
    surge: int | None, unavailable: int | None, replicas: int, budget: int | None, full: bool
) -> None:
    given_by_user = {"maxSurge": surge, "maxUnavailable": unavailable}
    fields: dict[str, Any] = {"rollout": {name: value for name, value in given_by_user.items() if value is not None}}
    fields |= {"replicas": replicas, "resources": {"gpu": {"count": 1}}}
    fields |= {} if budget is None else {"budget": {"maxGPUs": budget}}
    try:
        resource = parse_resource(manifest_document(**fields))
    except InvalidManifest:
        assert (surge, unavailable) == (0, 0) or (budget is not None and budget < replicas)
        return
    found = choose_strategy(
        resource.spec, replicas, rolling(unscheduled("ride-b-1", "b")) if full else Observed(None, ())
    )
    assert found.max_surge + found.max_unavailable > 0, "or the API server refuses the Deployment"
    assert budget is None or found.max_surge == 0 or replicas + found.max_surge <= budget
    if surge is not None and budget is None:
        assert found.max_surge == surge
