"""What is learnt follows requests that change: larger ones at once where memory runs out, smaller ones slowly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_operator.autoscaling.demand import estimate_demand
from paternoster_operator.autoscaling.replica_model import SHORT, ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals


def look(running: float, kv_usage: float, *, replicas: int = 2, **rest: int) -> Signals:
    loads = (ReplicaLoad(running, kv_usage, 0.02),) * replicas
    total = int(running * replicas)
    return Signals(ready=replicas, fresh=True, running=total, replicas=loads, flow_seconds=30.0, **rest)


def after(signals: Signals, looks: int, model: ReplicaModel | None = None) -> ReplicaModel:
    model = model or ReplicaModel()
    for _ in range(looks):
        model = model.observe(signals, 5.0)
    return model


def test_grown_sequences_count_at_once_where_memory_runs_short() -> None:
    short = after(look(100, 0.2), 100)
    assert short.kv_per_sequence == pytest.approx(0.002)
    grown = short.observe(look(100, 0.8), 5.0)
    assert grown.kv_per_sequence == pytest.approx(0.008)


def test_the_long_ones_left_after_a_burst_do_not_pass_for_all() -> None:
    usual = after(look(100, 0.4), 100)
    left = usual.observe(look(10, 0.2), 5.0)
    assert left.kv_per_sequence == pytest.approx(0.004, rel=0.1)


def test_young_sequences_do_not_make_it_forget() -> None:
    usual = after(look(100, 0.8), 100)
    young = usual.observe(look(200, 0.6), 5.0)
    assert young.kv_per_sequence is not None
    assert young.kv_per_sequence > 0.9 * 0.008


@given(
    before=st.tuples(st.floats(1, 256), st.floats(0.01, 1)),
    now=st.tuples(st.floats(1, 256), st.floats(SHORT + 0.01, 1)),
)
def test_in_a_filling_pool_no_sequence_is_taken_for_smaller_than_it_is(
    before: tuple[float, float], now: tuple[float, float]
) -> None:
    learnt = after(look(*before), 20).observe(look(*now), 5.0)
    assert learnt.kv_per_sequence is not None
    assert learnt.kv_per_sequence >= now[1] / now[0] * (1 - 1e-9)


def test_demand_is_never_less_than_what_runs() -> None:
    """Answers that grew eight times as long: those of the last minutes say little, what runs says all."""
    short = after(look(20, 0.1, arrived=300, departed=300, generated=30_000), 60)
    assert short.tokens_per_answer == pytest.approx(100)
    longer = look(60, 0.3, arrived=60, departed=40, generated=32_000)
    demand = estimate_demand(longer, short, 100.0)
    assert demand.steady >= longer.mean_running == 120


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.tuples(st.integers(1, 64), st.integers(2, 256)), min_size=10, max_size=40),
    running=st.floats(1, 64),
    queued=st.integers(0, 5000),
)
def test_replicas_that_only_read_prompts_have_no_pace_and_a_finite_demand(
    texts: list[tuple[int, int]], running: float, queued: int
) -> None:
    """Models that embed: no token ever follows a prompt, so nothing says how long a sequence decodes."""
    sums = StepSums()
    for count, length in texts:
        tokens = count * length
        sums.add(StepWork(tokens, 0, tokens, count * length * (length + 1) // 2), 0.004 + 2e-5 * tokens)
    load = ReplicaLoad(running, 0.0, 0.02, step_sums=sums.total)
    total = int(running)
    signals = Signals(
        ready=1, fresh=True, running=total, waiting=queued, replicas=(load,), flow_seconds=30.0, arrived=600,
        departed=600, generated=0,
    )  # fmt: skip
    model = after(signals, 10)
    assert model.tokens_per_answer == 0
    assert model.pace(running) is None
    assert model.most_within(0.05) is None
    assert model.kv_per_sequence is None
    cost = model.steps.known
    assert cost is not None
    assert all(0 <= part < 1 for part in cost)
    tokens, seconds = sums.total[1] / sums.total[0], sums.total[5] / sums.total[0]
    step = model.steps.mixed_step(int(tokens))
    assert step is not None
    assert 0 < step <= 1.1 * seconds
    demand = estimate_demand(signals, model, 64.0)
    assert demand.steady >= signals.mean_running > 0
    assert 0 <= demand.backlog <= queued
