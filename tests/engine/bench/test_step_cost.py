"""The cost model of a step: what is in a batch, and the fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.bench.calibration.step_cost import (
    StepCostFit,
    StepSample,
    StepWork,
    compute_residuals,
    explained_share,
    fit_step_cost,
)
from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams

works = st.builds(StepWork, st.integers(0, 512), st.integers(0, 64), st.integers(1, 20_000), st.integers(0, 100_000))
DESIGN = [
    StepWork(prefill, decodes, prefill + decodes * context, prefill * (prefill + 1) // 2)
    for prefill in (0, 16, 64, 256)
    for decodes in (0, 1, 4, 16)
    for context in (32, 256)
    if prefill + decodes
]


def request(name: str) -> Request:
    return Request(RequestSpec(name, [1] * 100, SamplingParams(max_tokens=4)))


def test_work_counts_prefill_apart_from_decode() -> None:
    batch = Batch(
        step=1,
        scheduled=(
            ScheduledRequest(request("decode"), start=40, num_tokens=1, samples=True),
            ScheduledRequest(request("chunk"), start=10, num_tokens=4, samples=False),
            ScheduledRequest(request("one token of a prompt"), start=0, num_tokens=1, samples=False),
        ),
    )
    # The chunk's tokens see 11, 12, 13 and 14 tokens; the last one sees itself.
    assert StepWork.from_batch(batch) == StepWork(
        prefill_tokens=5, decode_sequences=1, kv_tokens=41 + 14 + 1, prefill_pairs=51
    )


@given(
    fixed=st.floats(1e-4, 1e-1),
    prices=st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-2), st.floats(0, 1e-5), st.floats(0, 1e-6)),
)
@settings(max_examples=50, deadline=None)
def test_prices_that_made_the_steps_are_found_again(fixed: float, prices: tuple[float, ...]) -> None:
    truth = StepCostFit(fixed, *prices)
    samples = [StepSample(f"cell {i}", work, truth.predict_seconds(work)) for i, work in enumerate(DESIGN)]
    fit = fit_step_cost(samples)
    for sample in samples:
        assert fit.predict_seconds(sample.work) == pytest.approx(sample.seconds, rel=1e-6)


@given(st.lists(st.tuples(works, st.floats(1e-3, 1.0)), min_size=5, max_size=30, unique_by=lambda pair: pair[0]))
@settings(max_examples=100, deadline=None)
def test_no_price_is_below_zero_and_a_step_always_takes_time(pairs: list[tuple[StepWork, float]]) -> None:
    samples = [StepSample(f"cell {i}", work, seconds) for i, (work, seconds) in enumerate(pairs)]
    fit = fit_step_cost(samples)
    assert fit.fixed_seconds > 0
    assert min(fit.per_prefill_token_seconds, fit.per_decode_sequence_seconds, fit.per_kv_token_seconds) >= 0
    assert fit.per_prefill_pair_seconds >= 0


def test_a_price_that_would_be_negative_is_zero_and_the_others_make_up_for_it() -> None:
    # Steps get faster with context, which no price above 0 explains.
    samples = [StepSample(f"{i}", StepWork(0, 1 + i % 3, 100 * i, 0), 0.1 - 0.001 * i) for i in range(1, 9)]
    samples.append(StepSample("prefill", StepWork(64, 0, 64, 2080), 0.1))
    fit = fit_step_cost(samples)
    assert fit.per_kv_token_seconds == 0
    assert fit.fixed_seconds == pytest.approx(0.095, rel=0.05)


def test_a_noisy_cell_is_fitted_by_its_mean() -> None:
    truth = StepCostFit(0.02, 0.001, 0.002, 0, 0)
    samples = [
        StepSample(f"cell {i}", work, truth.predict_seconds(work) * noise)
        for i, work in enumerate(DESIGN)
        for noise in (0.5, 0.7, 1.8)
    ]
    fit = fit_step_cost(samples)
    assert fit.fixed_seconds == pytest.approx(0.02, rel=1e-3)
    assert all(abs(row.error) < 1e-3 for row in compute_residuals(samples, fit))
    assert {row.steps for row in compute_residuals(samples, fit)} == {3}


def test_explained_is_all_of_what_the_model_made_and_nothing_of_what_it_cannot_tell_apart() -> None:
    truth = StepCostFit(0.02, 0.001, 0.002, 0, 0)
    samples = [StepSample("cell", work, truth.predict_seconds(work)) for work in DESIGN]
    assert explained_share(samples, truth) == pytest.approx(1)
    mean = sum(sample.seconds for sample in samples) / len(samples)
    assert explained_share(samples, StepCostFit(mean, 0, 0, 0, 0)) == pytest.approx(0)


def test_too_few_steps_say_so() -> None:
    samples = [StepSample("one", StepWork(0, 1, 10, 0), 0.1)] * 9
    with pytest.raises(ValueError, match="9 steps are too few"):
        fit_step_cost(samples)


@given(works, st.floats(1e-6, 10))
def test_a_sample_survives_its_document(work: StepWork, seconds: float) -> None:
    sample = StepSample("cell", work, seconds)
    assert StepSample.from_document(sample.to_document()) == sample
