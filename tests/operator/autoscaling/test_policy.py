"""What the law reads of a spec."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from paternoster_operator.api.v1alpha1 import AutoscalingMode, ConcurrencyMode, LLMDeployment
from paternoster_operator.autoscaling.policy import ScalingPolicy

Resource = Callable[..., LLMDeployment]
NOON = datetime(2026, 3, 23, 12, tzinfo=UTC)
TO_ZERO = {"minReplicas": 0, "maxReplicas": 8, "scaleToZero": {"enabled": True, "idleSeconds": 30}}
AWAKE = {"name": "awake", "start": "08:00", "end": "18:00", "minReplicas": 2}


def test_latencies_are_seconds(resource: Resource) -> None:
    unset = ScalingPolicy.from_spec(resource().spec)
    assert (unset.ttft_seconds, unset.itl_seconds) == (None, None)
    policy = ScalingPolicy.from_spec(resource(slo={"ttftP95Milliseconds": 1500}).spec)
    assert (policy.ttft_seconds, policy.itl_seconds) == (1.5, None)


def test_idleness_counts_only_where_no_replica_is_allowed(resource: Resource) -> None:
    spec = resource(autoscaling={**TO_ZERO, "schedules": [AWAKE]}).spec
    always, noon = (ScalingPolicy.from_spec(spec, at).replicas for at in (None, NOON))
    assert always is not None
    assert (always.lowest, always.idle_seconds, always.bounds.schedules) == (0, 30, ())
    assert noon is not None
    assert (noon.lowest, noon.highest, noon.idle_seconds, noon.bounds.schedules) == (2, 8, None, ("awake",))
    never = ScalingPolicy.from_spec(resource(autoscaling={"maxReplicas": 2}).spec).replicas
    assert never is not None
    assert never.idle_seconds is None


def test_the_gpu_budget_is_below_every_schedule(resource: Resource) -> None:
    spec = resource(
        autoscaling={"maxReplicas": 8, "schedules": [{**AWAKE, "maxReplicas": 6}]},
        resources={"gpu": {"count": 2}},
        budget={"maxGPUs": 9},
    ).spec
    policy = ScalingPolicy.from_spec(spec, NOON).replicas
    assert policy is not None
    assert (policy.lowest, policy.highest) == (2, 4)


def test_what_is_paused_is_advised_only(resource: Resource) -> None:
    spec = resource(paused=True, autoscaling={"maxReplicas": 2}, concurrency={"mode": "Auto"}).spec
    policy = ScalingPolicy.from_spec(spec)
    assert policy.replicas is not None
    assert (policy.replicas.mode, policy.cap_mode) == (AutoscalingMode.ADVISORY, ConcurrencyMode.ADVISORY)
    assert policy.held_cap is None, "what was steered stays where it is"
    fixed = ScalingPolicy.from_spec(resource(paused=True, concurrency={"mode": "Fixed"}).spec)
    assert (fixed.replicas, fixed.cap_mode) == (None, ConcurrencyMode.FIXED)


@pytest.mark.parametrize(
    ("concurrency", "cap", "budget"),
    [
        ({}, ConcurrencyMode.ADVISORY, ConcurrencyMode.AUTO),
        ({"mode": "Fixed"}, ConcurrencyMode.FIXED, ConcurrencyMode.FIXED),
        ({"mode": "Advisory"}, ConcurrencyMode.ADVISORY, ConcurrencyMode.ADVISORY),
        ({"mode": "Auto"}, ConcurrencyMode.AUTO, ConcurrencyMode.AUTO),
        ({"tokenBudget": {"mode": "Fixed"}}, ConcurrencyMode.ADVISORY, ConcurrencyMode.FIXED),
        ({"mode": "Fixed", "tokenBudget": {"mode": "Auto"}}, ConcurrencyMode.FIXED, ConcurrencyMode.AUTO),
    ],
)
def test_a_mode_that_is_unset_is_advisory_for_the_cap_and_auto_for_the_budget(
    resource: Resource, concurrency: dict[str, Any], cap: ConcurrencyMode, budget: ConcurrencyMode
) -> None:
    policy = ScalingPolicy.from_spec(resource(concurrency=concurrency).spec)
    assert (policy.cap_mode, policy.budget_mode) == (cap, budget)
