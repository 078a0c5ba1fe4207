"""Status in words, and as kstatus reads it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.stats import Unreported
from paternoster_operator.api.types.status import LLMDeploymentStatus
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, TOKEN_BUDGET, Decision, LoopDecision, Reason
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.step_model import StepModel
from paternoster_operator.observed import DeploymentView, Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.cause import StallReason
from paternoster_operator.report.conditions import Access, Condition
from paternoster_operator.report.gateway_cap import GatewayCap
from paternoster_operator.report.status import build_status, failed_status, invalid_status

Resource = Callable[..., LLMDeployment]
DIRECT = Access(("ride",))
"""No gateway."""
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


def decided(replicas: int, *made: LoopDecision) -> Decision:
    """Decision of a fleet that is to have that many replicas."""
    return Decision({each.loop: each for each in made}, {REPLICAS: replicas, LIVE_CAP: 8, TOKEN_BUDGET: 0})


def status_of(
    resource: LLMDeployment, observed: Observed, *, replicas: int = 2, made: Decision | None = None, now: str = NOW,
    age: float = 1e9, access: Access = DIRECT, num_fleets: int = 1, gateway_cap: GatewayCap | None = None,
    **signals: Any,
) -> dict[str, Any]:  # fmt: skip
    decision = made or decided(replicas)
    defaults = {"ready": len(observed.serving), "fresh": bool(observed.serving)}
    seen = Signals(**{**defaults, **signals})
    return build_status(
        resource,
        observed,
        seen,
        decision,
        decision,
        now,
        access,
        steps=StepModel(),
        age_of_load=age,
        endpoint="http://door",
        num_fleets=num_fleets,
        gateway_cap=gateway_cap,
    )


def replace_status(fleet: LLMDeployment, status: Mapping[str, Any]) -> LLMDeployment:
    return fleet.model_copy(update={"status": dict(status)})


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


def up_to_date(status: Mapping[str, Any]) -> tuple[str, str]:
    found = next(condition for condition in status["conditions"] if condition["type"] == "UpToDate")
    return found["status"], found["reason"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (deployment(2), ("True", "AllReplicasUpdated")),
        (deployment(2, updated=1), ("False", "RollingOut")),
        # Its controller has not seen the edit: what it reports is of the template before.
        (replace(deployment(2), generation=2), ("False", "RollingOut")),
        # The last old pod has ended, and its successor does not serve yet.
        (replace(deployment(2), available=1), ("False", "RollingOut")),
        (replace(deployment(2), replicas=3), ("False", "RollingOut")),
        (deployment(1), ("False", "RollingOut")),
        (None, ("False", "Progressing")),
    ],
)
def test_up_to_date_is_false_while_anything_older_is_left(
    resource: Resource, view: DeploymentView | None, expected: tuple[str, str]
) -> None:
    """Ready stays true meanwhile, as old replicas serve."""
    observed = Observed(view, (pod("a"), pod("b")))
    assert up_to_date(status_of(resource(), observed)) == expected


def test_an_edit_that_does_not_reach_the_replicas_is_not_up_to_date(resource: Resource) -> None:
    observed = Observed(deployment(2), (pod("a"), pod("b")))
    refused = Access(("ride",), StallReason("ClusterRefused", "no"))
    assert up_to_date(status_of(resource(), observed, access=refused)) == ("False", "ClusterRefused")
    assert up_to_date(status_of(resource(paused=True), observed)) == ("Unknown", "Paused")
    good = status_of(resource(), observed)
    assert up_to_date(invalid_status(4, good, ["spec.x is 1"], NOW)) == ("False", "InvalidSpec")
    failure = Condition("Reconciling", "True", "ClusterUnavailable", "no answer")
    for failed in (failed_status(4, good, failure, NOW), failed_status(4, {}, failure, NOW)):
        assert up_to_date(failed) == ("Unknown", "ClusterUnavailable")
        LLMDeploymentStatus.model_validate({**good, **failed})


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


def test_a_paused_fleet_that_nobody_will_start_says_so(resource: Resource) -> None:
    paused = resource(paused=True)
    conditions = {c["type"]: c for c in status_of(paused, Observed(None, ()))["conditions"]}
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == ("False", "Paused")
    assert "spec.paused" in conditions["Stalled"]["message"]
    for going_on in (Observed(deployment(2), ()), Observed(deployment(0), (pod("a", ready=False),))):
        kinds = {c["type"] for c in status_of(paused, going_on)["conditions"]}
        assert "Stalled" not in kinds


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


def test_load_that_moves_is_written_more_seldom_the_more_fleets_there_are(resource: Resource) -> None:
    settled, fleet = Observed(deployment(2), (pod("a"), pod("b"))), resource()
    fleet.status = status_of(fleet, settled, running=100)

    def is_written(num_fleets: int, age: float, **signals: Any) -> bool:
        status = status_of(fleet, settled, now=LATER, age=age, num_fleets=num_fleets, **{"running": 120, **signals})
        return bool(status["load"] != fleet.status["load"])

    assert is_written(100, 5), "at each look"
    assert not is_written(500, 20)
    assert is_written(500, 25), "20 a second of them all"
    assert not is_written(2000, 59)
    assert is_written(2000, 60), "the age at which all are written"
    assert is_written(2000, 5, fresh=False), "what is stale is no load that moves"
    assert is_written(2000, 60, running=100)


def test_counts_of_a_window_are_no_reason_to_write(resource: Resource) -> None:
    """They grow at every look, and each write is one to etcd for each fleet."""
    settled, fleet = Observed(deployment(2), (pod("a"), pod("b"))), resource()
    fleet.status = status_of(fleet, settled, running=100, finished=40, preempted=2)
    assert status_of(fleet, settled, running=100, finished=80, preempted=4, now=LATER, age=5) == fleet.status


def test_numbers_of_the_load_in_a_message_wait_for_the_load(resource: Resource) -> None:
    """A cap within its bounds and a clamp have their reasons' numbers in words, which differ at every look."""
    settled, fleet = Observed(deployment(2), (pod("a"), pod("b"))), resource(concurrency={"mode": "Auto"})

    def state(words: str, reason: Reason = Reason.WITHIN_TOLERANCE, **fields: Any) -> dict[str, Any]:
        made = decided(
            2,
            LoopDecision("LiveCap", 8, 8, 8, reason, words),
            LoopDecision("Replicas", 2, 2, 3, Reason.MAX_REPLICAS, words),
        )
        return status_of(fleet, settled, made=made, **{"running": 100, "now": LATER, "age": 5, **fields})

    fleet.status = state("97 sequences run", now=NOW, age=1e9)
    assert state("98 sequences run") == fleet.status
    moved = {each["type"]: each["message"] for each in state("150 sequences run", running=150)["conditions"]}
    assert (moved["ConcurrencyStable"], moved["ScalingLimited"]) == ("150 sequences run", "150 sequences run")
    other = {each["type"]: each["message"] for each in state("98 sequences run", Reason.AT_FLOOR)["conditions"]}
    assert other["ConcurrencyStable"] == "98 sequences run", "with another reason at once"


def test_preemptions_are_told_with_what_finished(resource: Resource) -> None:
    load = status_of(resource(), Observed(deployment(2), (pod("a"),)), finished=12, preempted=3)["load"]
    assert (load["finishedRequests"], load["preemptedRequests"], load["preemptionsPerThousand"]) == (12, 3, 250)


def test_utilization_is_what_the_replica_loop_found(resource: Resource) -> None:
    """Not running and waiting over live caps: the target is compared with sequences wanted over those sustained."""
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    word = LoopDecision("Replicas", 2, 2, 2, Reason.WITHIN_TOLERANCE, "said", utilization=0.87)
    load = status_of(resource(), settled, made=decided(2, word), running=3)["load"]
    assert load["utilizationPercent"] == 87
    for made in (decided(2), decided(2, replace(word, utilization=None))):
        load = status_of(resource(), settled, made=made, running=3)["load"]
        assert "utilizationPercent" not in load, "nothing was asked, or nothing could be computed"


def test_a_change_that_acted_is_the_last_scaling(resource: Resource) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    fleet = resource()
    word = LoopDecision("Replicas", 2, 3, 3, Reason.DEMAND_ABOVE_TARGET, "said")
    fleet.status = status_of(fleet, settled, made=decided(3, word))
    assert fleet.status["lastScaleTime"] == NOW
    assert status_of(fleet, settled, now=LATER)["lastScaleTime"] == NOW


def test_what_is_known_of_bounds_and_starts_is_told(resource: Resource) -> None:
    fleet = resource(autoscaling={"maxReplicas": 3})
    observed, decision = Observed(None, ()), decided(1)
    policy = ScalingPolicy.from_spec(fleet.spec).replicas
    status = build_status(
        fleet, observed, Signals(), decision, decision, NOW, Access(), steps=StepModel(), age_of_load=0, endpoint="http://door",
        bounds=policy,
        startup={"lastSeconds": 40, "averageSeconds": 38, "observedStarts": 2},
    )  # fmt: skip
    LLMDeploymentStatus.model_validate(status)
    assert status["bounds"] == {"minReplicas": 1, "maxReplicas": 3, "schedules": []}
    assert status["startup"]["averageSeconds"] == 38
    assert not {"bounds", "startup", "economics"} & status_of(resource(), observed).keys()


TO_ZERO = {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"enabled": True}}


def test_a_fleet_without_replicas_is_ready_and_one_that_wakes_is_not(resource: Resource) -> None:
    fleet = resource(autoscaling=TO_ZERO)
    asleep = status_of(fleet, Observed(deployment(0), ()), replicas=0)
    assert kstatus({"metadata": {"generation": 3}, "status": asleep}) == "Current"
    assert asleep["conditions"][0]["reason"] == "ScaledToZero"
    waking = status_of(fleet, Observed(deployment(1), (pod("a", ready=False),)), replicas=1, held=1)
    assert kstatus({"metadata": {"generation": 3}, "status": waking}) == "InProgress"
    assert next(c["reason"] for c in waking["conditions"] if c["type"] == "Reconciling") == "Activating"


def test_advice_on_the_cap_is_no_change_of_its_condition(resource: Resource) -> None:
    """Or the status would be written at every look, for as long as the advice changes with the traffic."""
    settled, stable = Observed(deployment(2), (pod("a"), pod("b"))), []
    for preempted in (8, 9):
        message = f"{preempted} of 40 requests preempted"
        cut = LoopDecision(LIVE_CAP, 16, 12, 12, Reason.PREEMPTION_ABOVE_TARGET, message, applied=False)
        status = status_of(resource(), settled, made=decided(2, cut))
        stable += [c for c in status["conditions"] if c["type"] == "ConcurrencyStable"]
    assert stable[0] == stable[1]
    assert (stable[0]["status"], stable[0]["reason"], stable[0]["message"]) == (
        "True", "Advisory", "spec.concurrency.mode is Advisory",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.METRICS_STALE, "Unknown"),
        (Reason.NOT_REPORTED, "Unknown"),
        (Reason.INSUFFICIENT_DATA, "Unknown"),
        (Reason.STABILIZING, "True"),
    ],
)
def test_a_cap_that_is_held_for_want_of_numbers_is_not_on_target(
    resource: Resource, reason: Reason, status: str
) -> None:
    settled, fleet = Observed(deployment(2), (pod("a"), pod("b"))), resource(concurrency={"mode": "Auto"})
    held = LoopDecision(LIVE_CAP, 8, 8, 8, reason, "held")
    (stable,) = [
        each
        for each in status_of(fleet, settled, made=decided(2, held))["conditions"]
        if each["type"] == "ConcurrencyStable"
    ]
    assert stable["status"] == status
    assert stable["reason"] == (reason.value if status == "Unknown" else "OnTarget")


@pytest.mark.parametrize("objective", ["Goodput", "PreemptionRate"])
@pytest.mark.parametrize("reason", [Reason.WITHIN_TOLERANCE, Reason.AT_CAPACITY])
def test_goodput_is_not_on_target_where_the_cost_of_preemptions_is_not_reported(
    resource: Resource, objective: str, reason: Reason
) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    fleet = resource(concurrency={"mode": "Auto", "objective": objective})
    word = LoopDecision(LIVE_CAP, 8, 8, 8, reason, "no queue")

    def find_stable(**signals: Any) -> tuple[str, str]:
        conditions = status_of(fleet, settled, made=decided(2, word), **signals)["conditions"]
        (stable,) = [each for each in conditions if each["type"] == "ConcurrencyStable"]
        assert "no queue" in stable["message"]
        return stable["status"], stable["reason"]

    assert find_stable()[0] == "True"
    blind = objective == "Goodput"
    for lacking in (Unreported.STEPS, Unreported.RECOMPUTED_TOKENS):
        status, why = find_stable(unreported=(lacking,))
        assert (status, why == "NotReported") == ("Unknown" if blind else "True", blind)


@pytest.mark.parametrize("serving", [(), (pod("a"), pod("b"))], ids=["none serves", "none answers"])
def test_what_was_learnt_of_a_replica_stays_while_no_engine_reports(
    resource: Resource, serving: tuple[PodView, ...]
) -> None:
    model = {"fixedSeconds": "0.01", "kvBlocks": 900, "kvBlockSize": 16, "maxModelLen": 4096}
    fleet = replace_status(resource(), {"replicaModel": model, "maxModelLen": 4096})
    stale = tuple(each.name for each in serving)
    status = status_of(fleet, Observed(deployment(2), serving), stale_pods=stale, fresh=False)
    assert (status["replicaModel"], status["maxModelLen"]) == (model, 4096)


def test_a_capability_is_one_of_the_engines_as_they_report(resource: Resource) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    assert "stepCosts" in status_of(resource(), settled)["engine"]["capabilities"]
    blind = status_of(resource(), settled, unreported=(Unreported.STEPS,))
    assert "stepCosts" not in blind["engine"]["capabilities"]


FIGURES = {
    "runningRequests", "waitingRequests", "kvCachePercent", "finishedRequests", "preemptedRequests",
    "preemptionsPerThousand", "generationTokensPerSecond",
}  # fmt: skip


@pytest.mark.parametrize(
    ("signals", "unset"),
    [
        ({}, set()),
        ({"unreported": (Unreported.KV_BLOCKS, Unreported.STEPS)}, {"kvCachePercent"}),
        ({"unreported": (Unreported.PREEMPTIONS,)}, {"preemptedRequests", "preemptionsPerThousand"}),
        ({"unreported": (Unreported.REQUESTS,)}, {"finishedRequests"}),
        ({"stale_pods": ("a",), "fresh": False}, set()),
        ({"stale_pods": ("a", "b"), "fresh": False}, FIGURES),
    ],
)
def test_what_engines_do_not_report_is_unset_and_not_0(
    resource: Resource, signals: dict[str, Any], unset: set[str]
) -> None:
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    status = status_of(resource(cost={"gpuHour": "2"}, resources={"gpu": {"count": 1}}), settled, **signals)
    LLMDeploymentStatus.model_validate(status)
    assert FIGURES - status["load"].keys() == unset
    fresh = next(each for each in status["conditions"] if each["type"] == "MetricsFresh")
    assert status["concurrency"] == {"target": 8}, "no engine reports its own"
    assert {"tokenBudget", "maxModelLen"} & status.keys() == set()
    if lacking := signals.get("unreported"):
        assert (fresh["status"], fresh["message"]) == ("True", f"not reported: {', '.join(lacking)}")


def test_a_number_that_comes_or_goes_is_written_at_once(resource: Resource) -> None:
    settled, lacking = Observed(deployment(2), (pod("a"), pod("b"))), (Unreported.KV_BLOCKS,)
    before = status_of(resource(), settled)
    blind = status_of(replace_status(resource(), before), settled, age=1.0, unreported=lacking)
    assert "kvCachePercent" not in blind["load"]
    back = status_of(replace_status(resource(), blind), settled, age=1.0)
    assert back["load"]["kvCachePercent"] == 0


def test_limits_are_a_condition(resource: Resource) -> None:
    word = LoopDecision("Replicas", 2, 2, 5, Reason.MAX_REPLICAS, "as many as allowed", (Reason.MAX_REPLICAS,))
    settled = Observed(deployment(2), (pod("a"), pod("b")))
    status = status_of(resource(), settled, made=decided(2, word))
    limited = next(c for c in status["conditions"] if c["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "MaxReplicas")


def test_an_invalid_spec_names_its_faults(resource: Resource) -> None:
    status = invalid_status(4, {"replicas": 2}, ["spec.a: wrong", "spec.b: wrong"], NOW)
    assert kstatus({"metadata": {"generation": 4}, "status": status}) == "Failed"
    assert status["replicas"] == 2
    assert status["conditions"][0]["message"] == "spec.a: wrong; spec.b: wrong"


FETCHING = PodView(
    "a", "http://x", "Pending", False, False, 0, None, "", container="model", running_since="2026-01-01T00:00:00Z"
)


@pytest.mark.parametrize(
    ("observed", "ready", "reason"),
    [
        (Observed(deployment(1), (FETCHING,)), "Unknown", "ModelDownloading"),
        (Observed(deployment(2), (pod("b"), FETCHING)), "True", "MinimumReplicasAvailable"),
        (Observed(deployment(2), (pod("b", ready=False),)), "Unknown", "ModelLoading"),
    ],
)
def test_a_download_is_told(resource: Resource, observed: Observed, ready: str, reason: str) -> None:
    """With the time since when, which stays the same: a status that counts seconds is written every second."""
    fleet = resource(replicas=2, model={"source": "hf://org/name"})
    conditions_by_type = {each["type"]: each for each in status_of(fleet, observed)["conditions"]}
    assert (conditions_by_type["Ready"]["status"], conditions_by_type["Ready"]["reason"]) == (ready, reason)
    words = "hf://org/name is fetched by a since 2026-01-01T00:00:00Z"
    fetched = FETCHING in observed.pods
    assert (words in conditions_by_type["Ready"]["message"]) == (fetched and ready == "Unknown")
    assert (words in conditions_by_type["Reconciling"]["message"]) == fetched
    assert "Stalled" not in conditions_by_type
    later = {each["type"]: each["message"] for each in status_of(fleet, observed, now=LATER)["conditions"]}
    assert later == {name: each["message"] for name, each in conditions_by_type.items()}


@pytest.mark.parametrize(
    ("fetch_status", "suffix"),
    [
        (FetchStatus(state="downloading", done=6_999_999_999, total=16_100_000_000), " (43 % of 16.1 GB)"),
        (FetchStatus(state="downloading", done=17, total=16), " (100 % of 0.0 GB)"),
        (FetchStatus(state="downloading", done=43, total=100, rate=2.1e8), " (43 % of 0.0 GB, 210.0 MB/s)"),
        (FetchStatus(state="waiting", done=0, total=10**9), " (0 % of 1.0 GB)"),
        (FetchStatus(state="listing"), ""),
        (None, ""),
    ],
)
def test_how_far_a_download_is(resource: Resource, fetch_status: FetchStatus | None, suffix: str) -> None:
    observed = Observed(deployment(1), (FETCHING, pod("b", ready=False)))
    observed = observed.with_fields({"a": {"download": fetch_status}})
    status = status_of(resource(model={"source": "hf://org/name"}), observed)
    assert status["conditions"][0]["message"].endswith(f"is fetched by a since 2026-01-01T00:00:00Z{suffix}")
