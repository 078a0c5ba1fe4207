"""Sums over a vLLM's steps are those that this project's engine has of the same steps; no second counts twice."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.stats import STEP_SUMS
from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_vllm.step_sums import MOST_UNDER_WAY, StepMeter, measure_work

Part = tuple[int, int, int, bool]
"""Tokens that a request had computed, tokens of a step, proposed ones of them, and whether it is a new request."""


@st.composite
def parts(draw: st.DrawFn) -> Part:
    start, proposed = draw(st.integers(0, 5000)), draw(st.integers(0, 3))
    count = 1 + proposed if draw(st.booleans()) else draw(st.integers(2, 600).filter(lambda n: n != 1 + proposed))
    return start, count, proposed if count == 1 + proposed else 0, draw(st.booleans())


def describe(step: list[Part]) -> Any:
    """Describe a step like vLLM."""
    named = {f"r{number}": part for number, part in enumerate(step)}
    cached = {name: start for name, (start, _, _, new) in named.items() if not new}
    return SimpleNamespace(
        num_scheduled_tokens={name: count for name, (_, count, _, _) in named.items()},
        total_num_scheduled_tokens=sum(count for _, count, _, _ in step),
        scheduled_cached_reqs=SimpleNamespace(req_ids=list(cached), num_computed_tokens=list(cached.values())),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, num_computed_tokens=start) for name, (start, _, _, new) in named.items() if new
        ],
        scheduled_spec_decode_tokens={name: [0] * proposed for name, (_, _, proposed, _) in named.items() if proposed},
    )


def work_of(step: list[Part]) -> StepWork:
    """Count a step like this project's engine."""
    scheduled = [(None, start, count, count == 1 + proposed, [0] * proposed) for start, count, proposed, _ in step]
    batch: Any = SimpleNamespace(scheduled=scheduled)
    return StepWork.from_batch(batch)


@given(st.lists(st.tuples(st.lists(parts(), min_size=1, max_size=6), st.integers(1, 64)), max_size=6))
def test_the_sums_are_those_of_our_engine(steps: list[tuple[list[Part], int]]) -> None:
    meter, ours, now = StepMeter(), StepSums(), 0.0
    for step, eighths in steps:
        output = describe(step)
        meter.begin_step(output, now)
        now += eighths / 8  # exact in floats
        meter.end_step(output, now)
        ours.add(work_of(step), eighths / 8)
    assert meter.total == list(ours.total)
    assert len(meter.total) == STEP_SUMS


@given(st.lists(parts(), min_size=1, max_size=8))
def test_the_work_is_that_of_our_engine(step: list[Part]) -> None:
    work = work_of(step)
    expected = (work.prefill_tokens, work.decode_sequences, work.kv_tokens, work.prefill_pairs)
    assert measure_work(describe(step)) == expected


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=20), st.integers(1, 4))
def test_steps_that_overlap_take_no_longer_than_the_time_they_are_within(
    times: list[tuple[float, float]], ahead: int
) -> None:
    """Asynchronous scheduling schedules up to ``ahead`` steps before the first of them ends."""
    meter, now, begun = StepMeter(), 0.0, []
    for pause, seconds in times:
        now += pause
        begun.append(output := describe([(9, 1, 0, False)]))
        meter.begin_step(output, now)
        if len(begun) == ahead:
            now += seconds
            meter.end_step(begun.pop(0), now)
    for output in begun:
        now += 1
        meter.end_step(output, now)
    assert meter.total[0] == len(times)
    assert meter.total[5] <= now * (1 + 1e-9)


def test_a_step_lasts_from_the_end_of_the_one_before_it_and_idle_time_is_in_none() -> None:
    meter, outputs = StepMeter(), [describe([(9, 1, 0, False)]) for _ in range(3)]
    meter.begin_step(outputs[0], 10.0)
    meter.begin_step(outputs[1], 10.25)
    meter.end_step(outputs[0], 11.0)
    assert meter.total[5] == 1.0
    meter.end_step(outputs[1], 12.5)
    assert meter.total[5] == 1.0 + 1.5
    meter.begin_step(outputs[2], 100.0)
    meter.end_step(outputs[2], 100.5)
    assert meter.total[5] == 1.0 + 1.5 + 0.5


def test_a_step_that_never_ended_is_forgotten_with_its_time() -> None:
    meter, lost, other = StepMeter(), describe([(9, 1, 0, False)]), describe([(9, 2, 0, False)])
    meter.begin_step(lost, 1.0)
    meter.begin_step(other, 2.0)
    meter.end_step(other, 3.0)
    meter.end_step(lost, 4.0)
    assert meter.total[:6] == [1, 2, 0, 11, 2 * (9 + 11 + 1) // 2, 1.0]


def test_a_vllm_that_ends_no_step_has_no_sums() -> None:
    meter = StepMeter()
    for number in range(MOST_UNDER_WAY + 1):
        assert meter.total == [0.0] * STEP_SUMS
        meter.begin_step(describe([(9, 1, 0, False)]), float(number))
    assert (meter.total, meter.fault) == ([], "this vLLM reports the end of its steps in another way")


@pytest.mark.parametrize(
    "name", ["num_scheduled_tokens", "scheduled_cached_reqs", "scheduled_new_reqs", "scheduled_spec_decode_tokens"]
)
def test_a_description_that_lacks_something_ends_the_sums(name: str) -> None:
    meter, output = StepMeter(), describe([(0, 5, 0, True)])
    delattr(output, name)
    meter.begin_step(output, 0.0)
    meter.end_step(output, 1.0)
    assert meter.total == []
    assert name in meter.fault


def test_sums_beyond_64_bits_are_floats_for_they_travel_as_msgpack() -> None:
    meter, output = StepMeter(), describe([(2**40, 2**24, 0, False)])
    meter.begin_step(output, 0.0)
    meter.end_step(output, 1.0)
    assert max(meter.total) > 2**64
    assert {type(value) for value in meter.total} == {float}
