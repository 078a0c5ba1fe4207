"""The plan of a scale-down: who is drained, who ends, and that nothing with requests ends before its time."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import decoding, seen

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.scale_down import (
    ROUTING_SECONDS,
    ReplicaPod,
    longest_answer_seconds,
    plan_scale_down,
)
from paternoster_operator.autoscaling.signals import ReplicaLoad

LONGEST = 300.0
PODS = st.lists(
    st.builds(
        ReplicaPod,
        name=st.uuids().map(str),
        serves=st.booleans(),
        requests=st.none() | st.integers(0, 5),
        drained_seconds=st.none() | st.floats(0, 2 * LONGEST),
    ),
    max_size=12,
).map(lambda pods: [pod if pod.serves else replace(pod, drained_seconds=None) for pod in pods])


@given(PODS, st.integers(0, 12))
def test_a_pod_with_requests_ends_only_after_the_longest_drain(pods: list[ReplicaPod], target: int) -> None:
    plan = plan_scale_down(pods, target, LONGEST)
    for pod in pods:
        if pod.name in plan.ending:
            assert pod.name in plan.drained
            assert pod.drained_seconds is not None
            assert pod.requests == 0 or pod.drained_seconds >= LONGEST
            assert pod.drained_seconds >= ROUTING_SECONDS
    assert plan.replicas == target + len(plan.drained) - len(plan.ending)


@given(PODS, st.integers(0, 12))
def test_what_serves_on_is_the_target_and_what_starts_ends_before_anything_is_drained(
    pods: list[ReplicaPod], target: int
) -> None:
    plan = plan_scale_down(pods, target, LONGEST)
    starting = sum(not pod.serves for pod in pods)
    assert not plan.drained or len(pods) - starting - len(plan.drained) == target
    assert len(plan.drained) == max(0, len(pods) - target - starting)


@given(PODS, st.integers(0, 12))
def test_a_drained_pod_stays_drained_while_as_many_are_surplus(pods: list[ReplicaPod], target: int) -> None:
    plan = plan_scale_down(pods, target, LONGEST)
    drained = {pod.name for pod in pods if pod.drained_seconds is not None}
    assert drained <= set(plan.drained) or set(plan.drained) <= drained


def test_the_pod_with_the_fewest_requests_is_drained_and_ends_once_it_is_idle() -> None:
    pods = [ReplicaPod("a", True, 7), ReplicaPod("b", True, 3), ReplicaPod("c", True, None)]
    plan = plan_scale_down(pods, 2, LONGEST)
    assert (plan.replicas, plan.drained, plan.ending) == (3, {"b"}, set())
    drained = [pods[0], replace(pods[1], drained_seconds=100.0), pods[2]]
    assert plan_scale_down(drained, 2, LONGEST) == plan
    idle = [pods[0], replace(pods[1], requests=0, drained_seconds=100.0), pods[2]]
    assert plan_scale_down(idle, 2, LONGEST).replicas == 2
    assert plan_scale_down(idle, 3, LONGEST).drained == set(), "demand is back: it serves again"


def test_the_longest_answer_is_as_long_as_the_model_allows_at_the_pace_of_a_full_engine() -> None:
    model = ReplicaModel()
    signals = seen(
        replicas=(ReplicaLoad(40, 0.3, 0.02, decoding(0.01, 0.0005)),) * 2, finished=100, generated=10_000, arrived=100
    )
    for _ in range(10):
        model = model.observe(signals, 5.0)
    pace = model.step_seconds(48)
    assert pace is not None
    report = EngineStats.model_construct(capacity=48, max_model_len=8192)
    assert longest_answer_seconds([report], model) == 8192 * pace
    assert longest_answer_seconds([report], ReplicaModel()) == 0.0, "nothing is learnt yet"
    assert longest_answer_seconds([], model) == 0.0
