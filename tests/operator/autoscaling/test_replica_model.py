"""What is learnt follows requests that change: larger ones at once where memory runs out, smaller ones slowly."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.autoscaling import law_inputs

from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_operator.autoscaling.loops.demand import estimate_demand
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.replica_model import ReplicaModel, replica_capacity
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING


def signals(running: float, kv_usage: float, *, replicas: int = 2, **rest: int) -> Signals:
    loads = (ReplicaLoad(running, kv_usage, 0.02),) * replicas
    total = int(running * replicas)
    return Signals(ready=replicas, fresh=True, running=total, replicas=loads, window_seconds=30.0, **rest)


def after(signals: Signals, looks: int, model: ReplicaModel | None = None) -> ReplicaModel:
    model = model or ReplicaModel()
    for _ in range(looks):
        model = model.observe(signals, 5.0)
    return model


def test_grown_sequences_count_at_once_where_memory_runs_short() -> None:
    short = after(signals(100, 0.2), 100)
    assert short.kv_per_sequence == pytest.approx(0.002)
    grown = short.observe(signals(100, 0.8), 5.0)
    assert grown.kv_per_sequence == pytest.approx(0.008)


def test_the_long_ones_left_after_a_burst_do_not_pass_for_all() -> None:
    usual = after(signals(100, 0.4), 100)
    left = usual.observe(signals(10, 0.2), 5.0)
    assert left.kv_per_sequence == pytest.approx(0.004, rel=0.1)


def test_young_sequences_do_not_make_it_forget() -> None:
    usual = after(signals(100, 0.8), 100)
    young = usual.observe(signals(200, 0.6), 5.0)
    assert young.kv_per_sequence is not None
    assert young.kv_per_sequence > 0.9 * 0.008


@given(
    before=st.tuples(st.floats(1, 256), st.floats(0.01, 1)),
    now=st.tuples(st.floats(1, 256), st.floats(DEFAULT_TUNING.crowded_kv_usage + 0.01, 1)),
)
def test_in_a_filling_pool_no_sequence_is_taken_for_smaller_than_it_is(
    before: tuple[float, float], now: tuple[float, float]
) -> None:
    learnt = after(signals(*before), 20).observe(signals(*now), 5.0)
    assert learnt.kv_per_sequence is not None
    assert learnt.kv_per_sequence >= now[1] / now[0] * (1 - 1e-9)


def test_demand_is_never_less_than_what_runs() -> None:
    """Answers that grew eight times as long: those of the last minutes say little, what runs says all."""
    short = after(signals(20, 0.1, arrived=300, finished=300, generated=30_000), 60)
    assert short.tokens_per_answer == pytest.approx(100)
    longer = signals(60, 0.3, arrived=60, finished=40, generated=32_000)
    demand = estimate_demand(longer, short, 100.0)
    assert demand >= longer.mean_running == 120


def embedding(length: int, counts: Sequence[int], fixed: float, per_token: float, **rest: Any) -> Signals:
    """A replica whose steps read ``counts`` texts of a length each, whole; no token ever follows."""
    sums = StepSums()
    for count in counts:
        tokens = count * length
        sums.add(StepWork(tokens, 0, tokens, count * length * (length + 1) // 2), fixed + per_token * tokens)
    load = ReplicaLoad(rest.pop("running"), 0.0, None, step_sums=sums.total)
    texts = sum(counts)
    return Signals(ready=1, fresh=True, replicas=(load,), window_seconds=30.0, finished=texts, generated=0, **rest)


@given(
    # So long that fewer than the cap of 4,096 fit into a step.
    length=st.integers(3, 256),
    budget=st.integers(512, 8192),
    fixed=st.floats(1e-3, 0.05),
    per_token=st.floats(1e-5, 1e-3),
    share=st.floats(0.02, 1.0),
)
def test_replicas_that_only_read_prompts_are_as_full_as_they_are(
    length: int, budget: int, fixed: float, per_token: float, share: float
) -> None:
    """Models that embed. Their steps are full when tokens are as many as may be, and busy for all of the time."""
    most = budget // length
    step = fixed + per_token * length * most
    rate = share * most / step
    counts = [max(1, most * eighths // 8) for eighths in range(1, 9)] * 3
    busy = embedding(length, counts, fixed, per_token, running=share * most, arrived=10_000, token_capacity=budget)
    model = after(replace(busy, window_seconds=10_000 / rate), 20)
    capacity = replica_capacity(law_inputs.policy(engine={"maxNumSeqs": 4096}), model)
    assert capacity.bound == "max_batched_tokens"
    assert capacity.sequences == pytest.approx(budget / length)
    demand = estimate_demand(replace(busy, window_seconds=10_000 / rate), model, capacity.sequences)
    # Less than a text is free in a full step.
    assert share * 0.95 * most / (most + 1) <= demand / capacity.sequences <= share * 1.05


def test_a_request_for_one_token_is_as_one_for_a_vector() -> None:
    seen = embedding(64, [8] * 20, 0.01, 1e-4, running=4.0, arrived=160, token_capacity=512)
    vectors, tokens = after(seen, 10), after(replace(seen, generated=seen.finished), 10)
    assert tokens.prompt_tokens == vectors.prompt_tokens == 64
    assert tokens.step_seconds(8) == vectors.step_seconds(8) == pytest.approx(0.01 + 8 * 64 * 1e-4, rel=0.01)
    assert after(replace(seen, generated=2 * seen.finished), 10).prompt_tokens is None


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.tuples(st.integers(1, 64), st.integers(2, 256)), min_size=10, max_size=40),
    running=st.floats(1, 64),
    queued=st.integers(0, 5000),
)
def test_the_demand_of_replicas_that_only_read_prompts_is_finite(
    texts: list[tuple[int, int]], running: float, queued: int
) -> None:
    sums = StepSums()
    for count, length in texts:
        tokens = count * length
        sums.add(StepWork(tokens, 0, tokens, count * length * (length + 1) // 2), 0.004 + 2e-5 * tokens)
    load = ReplicaLoad(running, 0.0, 0.02, step_sums=sums.total)
    total = int(running)
    signals = Signals(
        ready=1, fresh=True, running=total, waiting=queued, replicas=(load,), window_seconds=30.0, arrived=600,
        finished=600, generated=0,
    )  # fmt: skip
    model = after(signals, 10)
    assert model.tokens_per_answer == 0
    assert model.most_within(0.05) is None
    assert model.kv_per_sequence is None
    cost = model.steps.trusted_cost
    assert cost is not None
    assert all(0 <= part < 1 for part in cost)
    tokens, seconds = sums.total[1] / sums.total[0], sums.total[5] / sums.total[0]
    assert model.steps.prompt_step(tokens) == pytest.approx(seconds, rel=0.05)
    demand = estimate_demand(signals, model, 64.0)
    assert signals.mean_running <= demand < math.inf


def test_prompts_count_by_the_share_of_requests_that_have_ended() -> None:
    """A young burst: as many prompts as later, and a tenth of the tokens; nine of ten requests still run."""
    work = StepWork(prefill_tokens=1000, decode_sequences=20)
    sums = law_inputs.step_sums((work, 0.1) for _ in range(20))

    def line(started: int, finished: int) -> tuple[float, float]:
        load = ReplicaLoad(20, 0.3, 0.1, sums)
        signals = Signals(ready=2, fresh=True, replicas=(load, load), started=started, finished=finished)
        found = after(signals, 10)._decode_line
        assert found is not None
        return found

    settled, young = line(1000, 1000), line(1000, 100)
    assert young[0] == settled[0]
    assert young[1] < settled[1]
    assert line(0, 0) == line(100, 1000) == settled, "a decline, and engines that do not count starts"


def generating(prompt: int, requests: int, *, started: int | None = None) -> Signals:
    """A replica that reads the prompts of ``requests`` and generates 100 tokens for each, 20 at once."""
    sums = StepSums()
    for tokens in (0, prompt * requests // 50, prompt * requests // 25) * 50:
        sums.add(StepWork(tokens, 20, 20 * 500, 0), 0.02 + 1e-4 * tokens)
    load = ReplicaLoad(20.0, 0.1, 0.02, step_sums=sums.total)
    return Signals(
        ready=1, fresh=True, running=20, replicas=(load,), window_seconds=30.0, arrived=requests, finished=requests,
        started=requests if started is None else started, generated=100 * requests,
    )  # fmt: skip


def learnt(*looks: tuple[Signals, int]) -> Models:
    models, now = Models.empty(), 0.0
    for signals, count in looks:
        for _ in range(count):
            now += 5.0
            models = models.learn_signals(signals, now)
    return models


def test_requests_that_were_heavier_are_forgotten_once_lighter_ones_come() -> None:
    heavy, light = generating(4000, 30), generating(200, 30)
    fresh, soon, later = learnt((light, 120)), learnt((heavy, 120), (light, 2)), learnt((heavy, 120), (light, 60))
    assert soon.lighter_since < 0
    assert 600 < later.lighter_since <= 780
    usual, young, now = (models.replica.most_within(0.1) or 0.0 for models in (fresh, soon, later))
    assert 0 < young < 0.2 * usual
    assert now > 0.75 * usual


@pytest.mark.parametrize("factor", [0.75, 1.3, 20.0])
def test_no_other_change_forgets(factor: float) -> None:
    """A quarter less work for a request, or more."""
    assert learnt((generating(4000, 30), 120), (generating(round(4000 * factor), 30), 36)).lighter_since < 0


def test_a_burst_that_ends_is_no_lighter_traffic() -> None:
    """Few start and many end: each takes what it did, but the prompts of those that end were read before."""
    usual = generating(4000, 30)
    ending = replace(generating(1000, 30), started=7)
    assert learnt((usual, 120), (ending, 24)).lighter_since < 0
