"""The closed forms against counting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_simulator.cost import StepCost, to_seconds, to_ticks

costs = st.builds(
    StepCost,
    fixed=st.integers(1, 10**10),
    prefill_token=st.integers(0, 10**8),
    decode_sequence=st.integers(0, 10**8),
    kv_token=st.integers(0, 10**6),
    prefill_pair=st.integers(0, 10**4),
)


def item(start: int, count: int, *, samples: bool) -> ScheduledRequest:
    return ScheduledRequest(Request(RequestSpec("r", [0] * 8, SamplingParams(max_tokens=1))), start, count, samples)


@given(costs, st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(1, 40))
def test_many_decode_steps_take_as_long_as_one_by_one(cost: StepCost, contexts: list[int], steps: int) -> None:
    each = [
        cost.step(Batch(0, tuple(item(context + i - 1, 1, samples=True) for context in contexts))) for i in range(steps)
    ]
    assert cost.decode(len(contexts), sum(contexts), steps) == sum(each)


@given(costs, st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(0, 40))
def test_sums_over_many_decode_steps_are_those_of_one_by_one(cost: StepCost, contexts: list[int], steps: int) -> None:
    single, run = StepSums(), StepSums()
    for i in range(steps):
        batch = Batch(0, tuple(item(context + i - 1, 1, samples=True) for context in contexts))
        single.add(StepWork.from_batch(batch), cost.step(batch))
    cost.add_decodes(run, len(contexts), sum(contexts), steps)
    assert run == single


@given(costs, st.integers(1, 300), st.integers(1, 10**6), st.integers(0, 10**13))
def test_started_is_the_last_step_that_begins_in_time(
    cost: StepCost, sequences: int, context: int, elapsed: int
) -> None:
    n = cost.count_started(sequences, context, elapsed)
    assert n >= 1
    assert cost.decode(sequences, context, n - 1) <= elapsed < cost.decode(sequences, context, n)


def test_a_step_adds_up_its_parts() -> None:
    cost = StepCost(fixed=1000, prefill_token=100, decode_sequence=10, kv_token=1, prefill_pair=7)
    batch = Batch(0, (item(4, 1, samples=True), item(2, 3, samples=False), item(0, 1, samples=False)))
    pairs = (3 + 4 + 5) + 1
    assert cost.step(batch) == 1000 + 10 + (5 + 5 + 1) + 4 * 100 + pairs * 7


def test_seconds_and_ticks() -> None:
    assert to_ticks(1.5) == 1_500_000_000_000
    assert to_seconds(to_ticks(0.25)) == 0.25


@pytest.mark.parametrize(("field", "value", "wanted"), [("fixed", 0, "at least 1"), ("kv_token", -1, "at least 0")])
def test_a_cost_that_cannot_be_is_refused(field: str, value: int, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}: must be {wanted}"):
        StepCost(**{"fixed": 1, field: value})
