"""The queue is bounded by time exactly where no replica can be added, and a user named a limit for first tokens."""

import json
from typing import Any

import pytest
from tests.operator.autoscaling.law_inputs import decide, law_state, policy, seen
from tests.operator.engines.test_vllm_stats import METRICS, REPORT

from paternoster_operator.autoscaling.decision import Reason
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.report.events import decision_event

SLO = {"ttftP95Milliseconds": 3000}
AT_MOST_TWO = {"minReplicas": 1, "maxReplicas": 2}


def test_at_the_ceiling_a_third_of_the_limit_is_allowed() -> None:
    made = decide(policy(slo=SLO, autoscaling=AT_MOST_TWO), seen(waiting=50), law_state(2), 100.0)
    assert made.queue_wait is not None
    assert (made.queue_wait.target, made.queue_wait.reason, made.queue_wait.applied) == (
        990,
        Reason.MAX_REPLICAS,
        True,
    )
    assert made.queue_wait.message == "queue wait 0->990 ms: 2 replicas are the most allowed"
    assert decision_event(made.queue_wait).reason == "QueueBounded"


def test_a_gpu_budget_is_a_ceiling() -> None:
    loops = policy(slo=SLO, budget={"maxGPUs": 2}, resources={"gpu": {"count": 1}})
    made = decide(loops, seen(), law_state(2), 100.0)
    assert made.queue_wait is not None
    assert (made.queue_wait.target, made.queue_wait.reason) == (990, Reason.GPU_BUDGET)


@pytest.mark.parametrize(
    ("spec", "load", "replicas"),
    [
        pytest.param({}, {}, 2, id="no limit for first tokens"),
        pytest.param({"slo": {"itlP95Milliseconds": 50}, "autoscaling": AT_MOST_TWO}, {}, 2, id="the other limit"),
        pytest.param({"slo": SLO}, {}, 2, id="replicas can be added"),
        pytest.param({"slo": SLO, "autoscaling": AT_MOST_TWO}, {"ready": 1, "pending": 1}, 2, id="one is on its way"),
        pytest.param({"slo": SLO, "autoscaling": None, "replicas": 2}, {}, 2, id="a fixed number"),
        pytest.param(
            {"slo": SLO, "replicas": 2, "autoscaling": {**AT_MOST_TWO, "mode": "External"}}, {}, 2, id="another scales"
        ),
    ],
)
def test_elsewhere_requests_wait(spec: dict[str, Any], load: dict[str, Any], replicas: int) -> None:
    made = decide(policy(**spec), seen(waiting=50, **load), law_state(replicas), 100.0)
    assert made.queue_wait is None
    assert made.decision.targets["QueueWait"] == 0


def test_engines_without_such_a_limit_get_none() -> None:
    with_none = VllmAdapter().parse_stats([json.dumps(REPORT).encode(), METRICS], 1.5)
    made = decide(
        policy(slo=SLO, autoscaling=AT_MOST_TWO), seen(waiting=50, reports=(with_none,) * 2), law_state(2), 100.0
    )
    assert made.queue_wait is None
    assert made.decision.targets["QueueWait"] == 0
    with_some = (with_none, with_none.model_copy(update={"max_queue_milliseconds": 0}))
    made = decide(policy(slo=SLO, autoscaling=AT_MOST_TWO), seen(waiting=50, reports=with_some), law_state(2), 100.0)
    assert made.decision.targets["QueueWait"] == 990


def test_the_bound_goes_when_replicas_can_be_added_again() -> None:
    made = decide(policy(slo=SLO), seen(), law_state(2, queue_wait=990), 100.0)
    assert made.queue_wait is not None
    assert (made.queue_wait.target, made.queue_wait.reason) == (0, Reason.WITHIN_TOLERANCE)
    assert decision_event(made.queue_wait).reason == "QueueUnbounded"


@pytest.mark.parametrize("load", [{"fresh": False, "stale_pods": ("a",)}, {"ready": 1}])
def test_silence_and_a_lost_replica_change_nothing(load: dict[str, Any]) -> None:
    made = decide(policy(slo=SLO, autoscaling=AT_MOST_TWO), seen(**load), law_state(2, queue_wait=990), 100.0)
    assert made.decision.targets["QueueWait"] == 990


def test_advice_is_not_applied() -> None:
    loops = policy(slo=SLO, autoscaling={**AT_MOST_TWO, "mode": "Advisory"})
    made = decide(loops, seen(), law_state(2), 100.0)
    assert made.queue_wait is not None
    assert (made.queue_wait.target, made.queue_wait.applied) == (990, False)
    assert made.decision.targets["QueueWait"] == 0
