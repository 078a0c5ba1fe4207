"""The cost of a step, fitted to sums: right where the traffic shows it, sound where it does not."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import decoding, step_sums

from paternoster_engine.core.step_work import StepWork
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.step_model import StepModel
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING

COST = (0.02, 1.4e-4, 7e-5, 5e-8, 3e-9)
"""Cost of a 70B model on two H200."""
works = st.builds(
    StepWork,
    prefill_tokens=st.sampled_from([0, 0, 300, 1000, 2048]),
    decode_sequences=st.integers(1, 200),
    kv_tokens=st.integers(200, 400_000),
    prefill_pairs=st.integers(0, 4_000_000),
)


def seconds(work: StepWork) -> float:
    counts = (1, work.prefill_tokens, work.decode_sequences, work.kv_tokens, work.prefill_pairs)
    return sum(price * count for price, count in zip(COST, counts, strict=True))


def signals(*sums: tuple[float, ...]) -> Signals:
    return Signals(replicas=tuple(ReplicaLoad(20, 0.2, 0.03, each) for each in sums))


def learnt(*sums: tuple[float, ...], looks: int = 100, model: StepModel | None = None) -> StepModel:
    model = model or StepModel()
    for _ in range(looks):
        model = model.observe(signals(*sums), 5.0)
    return model


@settings(max_examples=50, deadline=None)
@given(st.lists(works, min_size=40, max_size=80))
def test_steps_like_those_seen_are_foretold(steps: list[StepWork]) -> None:
    model = learnt(step_sums((work, seconds(work)) for work in steps))
    assert model.trusted_cost is not None
    assert min(model.trusted_cost) >= 0
    products = step_sums((work, seconds(work)) for work in steps)
    foretold = sum(price * products[i] for i, price in enumerate(model.trusted_cost))
    assert foretold == pytest.approx(products[5], rel=0.01)


def test_mixed_traffic_tells_every_price() -> None:
    steps = [
        StepWork(chunk, n, n * context, chunk * (context + chunk) // 2)
        for chunk in (0, 0, 300, 2048) for n in (5, 50, 200) for context in (300, 900, 3000)
    ]  # fmt: skip
    model = learnt(step_sums((work, seconds(work)) for work in steps))
    assert model.trusted_cost == pytest.approx(COST, rel=0.05)
    assert model.fit > 0.999


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.6])
def test_the_spread_is_that_of_each_step_around_the_fit(spread: float) -> None:
    works = [StepWork(chunk, 20, 20 * 500) for chunk in (0, 0, 300, 2048)]
    sums = step_sums((work, seconds(work) * factor) for work in works for factor in (1 - spread, 1 + spread))
    assert learnt(sums).spread == pytest.approx(spread, abs=0.02)


def test_nothing_is_known_before_enough_was_seen() -> None:
    model = learnt(decoding(0.01, 0.0002), looks=int(DEFAULT_TUNING.min_observations) - 1)
    assert (model.trusted_cost, model.decode_line, model.decode_room(0.1), model.largest_step(0.1)) == (None,) * 4
    assert learnt((), looks=50).trusted_cost is None, "an engine that tells no sums"


def test_decodes_alone_tell_the_line_and_how_many_fit() -> None:
    model = learnt(decoding(0.01, 0.0002))
    assert model.decode_line == pytest.approx((0.01, 0.0002), rel=0.02)
    assert model.decode_room(0.05) == pytest.approx(200, rel=0.02)
    assert model.largest_step(0.05) is None, "no prompt was seen"


def test_prompts_share_the_steps_of_who_decodes() -> None:
    """Each tenth step has 1,000 prompt tokens beside 20 sequences: 5 prompt tokens for each that is generated."""
    steps = [StepWork(1000 if i % 10 == 0 else 0, 20 + i % 3, 0, 0) for i in range(60)]
    model = learnt(
        step_sums((work, 0.02 + 1.4e-4 * work.prefill_tokens + 1e-4 * work.decode_sequences) for work in steps)
    )
    decoded = sum(work.decode_sequences for work in steps)
    assert model.decode_line is not None
    assert model.decode_line[1] == pytest.approx(1e-4 + 6000 * 1.4e-4 / decoded, rel=0.05)


def test_the_largest_step_takes_as_long_as_it_may() -> None:
    steps = [StepWork(chunk, n, n * 900, chunk * 500) for chunk in (0, 512, 2048) for n in (10, 40, 80)] * 2
    model = learnt(step_sums((work, seconds(work)) for work in steps))
    tokens = model.largest_step(0.2)
    assert tokens is not None
    assert model.mixed_step(int(tokens)) == pytest.approx(0.2, rel=0.01)
    assert 900 < tokens < 1400


def test_one_engine_with_stragglers_moves_little() -> None:
    sound = learnt(decoding(0.01, 0.0002))
    slow = learnt(decoding(0.01, 0.0002), decoding(0.5, 0.0002), looks=1, model=sound)
    assert sound.decode_line is not None
    assert slow.decode_line is not None
    assert slow.decode_line[0] < 1.3 * sound.decode_line[0]


def test_what_is_claimed_to_be_many_steps_weighs_as_one_engine() -> None:
    many = tuple(value * 1000 for value in decoding(0.02, 0.0002))
    model = learnt(decoding(0.01, 0.0002), decoding(0.01, 0.0002), many)
    assert model.decode_line is not None
    assert model.decode_line[0] < 0.0145


def test_old_steps_fade() -> None:
    model = learnt(decoding(0.01, 0.0002), looks=100)
    changed = learnt(decoding(0.014, 0.0002), looks=700, model=model)
    assert changed.decode_line is not None
    assert changed.decode_line[0] == pytest.approx(0.014, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.just(0.0) | st.floats(1, 1e9), min_size=21, max_size=21), min_size=1, max_size=4))
@example([[1.0, *[0.0] * 18, 3.0, 0.0], [337206481.0, *[0.0] * 17, 1.0, 0.0, 0.0]])
def test_sums_that_contradict_each_other_teach_finite_costs(claims: list[list[float]]) -> None:
    """No step has such products: each price is a number of at least 0, and no look fails.

    A price is at most what its own row gives, which one engine's claim of many steps may make as large as it likes.
    """
    model = learnt(decoding(0.01, 0.0002), looks=7)
    for claim in claims:
        model = learnt(tuple(claim), looks=2, model=model)
        assert model.cost is not None
        assert all(0 <= price < math.inf for price in model.cost)
        assert 0 <= model.fit <= 1
        assert 0 <= model.spread <= 1
