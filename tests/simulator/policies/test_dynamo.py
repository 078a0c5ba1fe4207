"""Dynamo's planner by hand: easy thresholds, one replica at a time, and the SLA model's predictions."""

from dataclasses import replace

import pytest

from peer_policies.bounds import Bounds
from peer_policies.dynamo import DynamoPlanner, DynamoSettings, StepModel
from peer_policies.lengths import Lengths

TEN = Bounds(1, 10)


def planner(facts, target="throughput", bounds=TEN, **settings) -> DynamoPlanner:
    return DynamoPlanner(DynamoSettings(optimization_target=target, **settings), bounds, facts)


@pytest.mark.parametrize(
    ("target", "used", "wanted"),
    [
        ("throughput", (1000, 300, 300), 3),
        ("throughput", (700, 300, 300), 3),
        ("throughput", (599, 599, 599), 2),
        ("latency", (401, 10, 10), 4),
        ("latency", (110, 10, 10), 3),
        ("latency", (99, 10, 10), 2),
    ],
)
def test_easy_thresholds_on_kv_use(observe, stats, facts, target, used, wanted) -> None:
    engines = [stats(kv_blocks_used=blocks) for blocks in used]
    assert planner(facts, target).decide(observe(0, engines)).replicas == wanted


def test_easy_counts_queued_prompts(observe, stats, facts) -> None:
    policy = planner(facts)
    policy.decide(observe(0, [stats(kv_blocks_used=900)]))
    # 10 prompts of 1,000 tokens: a mean of 1,000; 2 wait: 14,400 + 2,000 of 16,000 tokens.
    busy = stats(kv_blocks_used=900, waiting=2, queue_count_total=10, prompt_tokens_total=10_000)
    assert policy.decide(observe(5, [busy])).replicas == 2


def test_nothing_while_a_replica_is_on_its_way(observe, stats, facts) -> None:
    policy = planner(facts, "latency")
    assert policy.decide(observe(0, [stats(kv_blocks_used=900)] * 2, replicas=3)).replicas == 3
    assert policy.decide(observe(5, [stats(kv_blocks_used=900)] * 3)).replicas == 4


def test_bounds_hold(observe, stats, facts) -> None:
    policy = planner(facts, bounds=Bounds(2, 3))
    assert policy.decide(observe(0, [stats()] * 2)).replicas == 2
    assert policy.decide(observe(5, [stats(kv_blocks_used=900, waiting=1)] * 3)).replicas == 3


def test_the_model_sums_chunks_and_spreads_a_sequences_share(facts) -> None:
    model = StepModel.of(facts, Lengths(prompt=400.0, output=200.0))
    assert model.per_kv_token == pytest.approx(1e-6 + 1e-4 / 500)
    # 600 + 400 tokens are two chunks of 512: 2 * (0.01 + 1.2e-6 * 10,000) + 1,000 * 1e-4.
    assert model.ttft(600.0, 10_000.0) == pytest.approx(0.144)
    # 0.01 + 1.2e-6 * (9,500 + 500), and 1,000 prompt tokens a second take a tenth of the time.
    assert model.itl(9_500.0, 0.0) == pytest.approx(0.022)
    assert model.itl(9_500.0, 1_000.0) == pytest.approx(0.022 / 0.9)


def sla(observe, stats, facts, replicas: int, **numbers: int) -> int:
    """Replicas after a minute in which each engine began 60 prompts of 400 tokens and ended 60 outputs of 200."""
    policy = planner(facts, "sla")
    policy.decide(observe(0, [stats()] * replicas))
    counters = {
        "queue_count_total": 60,
        "prompt_tokens_total": 24_000,
        "requests_finished_total": 60,
        "generation_tokens_total": 12_000,
    }
    return policy.decide(observe(60 - 5, [stats(**counters, **numbers)] * replicas)).replicas


def test_sla_up_when_every_engine_misses_ttft(observe, stats, facts) -> None:
    # 12 waiting * 400 + 400 = 5,200 tokens: 11 chunks * (0.01 + 1.2e-6 * 8,000) + 0.52 = 0.74 s > 0.5 s.
    assert sla(observe, stats, facts, 2, waiting=12, kv_blocks_used=500) == 3
    # 4 waiting: 4 * 0.0196 + 0.2 = 0.28 s holds, but what would remain would not.
    assert sla(observe, stats, facts, 2, waiting=6, kv_blocks_used=500) == 2


def test_sla_down_when_one_less_would_hold(observe, stats, facts) -> None:
    assert sla(observe, stats, facts, 4, waiting=0, kv_blocks_used=300) == 3
    assert sla(observe, stats, facts, 1, waiting=0, kv_blocks_used=300) == 1


def test_sla_refuses_a_merge_that_does_not_fit_in_memory(observe, stats, facts) -> None:
    # Two engines at 60 % do not fit into one, though it would be fast enough.
    assert sla(observe, stats, facts, 2, waiting=0, kv_blocks_used=600) == 2


def test_sla_without_requests_says_nothing(observe, stats, facts) -> None:
    assert planner(facts, "sla").decide(observe(0, [stats()] * 3)).replicas == 3


def test_a_prompts_tokens_read_half_the_prompt_on_average(facts) -> None:
    model = StepModel.of(replace(facts, per_prefill_pair_seconds=1e-7), Lengths(prompt=400.0, output=200.0))
    assert model.per_prefill_token == pytest.approx(1e-4 + 200 * 1e-7)
