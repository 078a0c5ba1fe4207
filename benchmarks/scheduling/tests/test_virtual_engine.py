"""Requests on the virtual clock: closed forms that the real scheduler must meet."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason
from paternoster_simulator.cost import StepCost
from scheduling.modes import BOTH, static_utilisation
from scheduling.serving import Arrival, percentile, serve
from scheduling.virtual_engine import Machine

FIXED, PREFILL, DECODE = 0.010, 0.001, 0.002


def machine(**changes: object) -> Machine:
    config = SchedulerConfig(
        max_num_seqs=4, max_batched_tokens=64, max_model_len=256, block_size=4, num_blocks=512, prefix_cache=False
    )
    cost = StepCost.from_seconds(
        fixed_seconds=FIXED, per_prefill_token_seconds=PREFILL, per_decode_sequence_seconds=DECODE
    )
    return Machine(config, cost, 0.001).changed(**changes)


def arrivals(*lengths: int) -> list[Arrival]:
    return [Arrival(0.0, [number + 1] * 8, length) for number, length in enumerate(lengths)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_static_batches_fill_the_share_of_places_that_the_closed_form_says(lengths: list[int]) -> None:
    served = serve(machine().with_batching("static"), arrivals(*lengths))
    assert served.counters.generation_tokens == sum(lengths)
    assert sum(lengths) / (4 * served.sampling_steps) == pytest.approx(static_utilisation(lengths, 4))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_continuous_batching_never_takes_more_steps_than_static(lengths: list[int]) -> None:
    steps = [serve(machine().with_batching(mode), arrivals(*lengths)).sampling_steps for mode in BOTH]
    assert steps[1] <= steps[0]


def test_a_request_alone_takes_what_its_steps_cost() -> None:
    (record,) = serve(machine(), [Arrival(2.0, [1] * 8, 3)]).records
    assert record.ttft == pytest.approx(FIXED + 8 * PREFILL)
    assert record.itls == pytest.approx([FIXED + DECODE] * 2)
    assert record.end is FinishReason.LENGTH


def test_copies_to_the_host_take_time_and_save_the_tokens() -> None:
    crowd = arrivals(30, 30, 30, 30)
    scarce = machine(num_blocks=20)
    recomputed = serve(scarce, crowd).counters
    swapped = serve(scarce.changed(preemption="swap", host_blocks=64), crowd).counters
    assert recomputed.preemptions > 0
    assert recomputed.recomputed_tokens > 0
    assert swapped.swapped_in_blocks == swapped.swapped_out_blocks > 0
    assert swapped.recomputed_tokens == 0


def test_answers_follow_the_script_so_that_a_next_turn_is_found_in_the_cache() -> None:
    first = Arrival(0.0, list(range(1, 9)), 8, list(range(11, 19)))
    second = Arrival(5.0, [*first.prompt, *first.answer, 21, 22, 23, 24], 2)
    served = serve(machine(prefix_cache=True), [first, second])
    # The last token of an answer is sampled and never computed: its block is not full in the cache.
    assert served.counters.cached_prompt_tokens == 12


def test_no_prefill_of_what_has_expired() -> None:
    crowd = [Arrival(0.0, [n + 1] * 60, 8, deadline_s=0.1) for n in range(12)]
    served = serve(machine(), crowd)
    assert served.ends[FinishReason.TIMEOUT] > 0
    assert served.late_prefills == 0


def test_goodput_counts_requests_within_both_limits() -> None:
    served = serve(machine(), arrivals(3))
    first = served.records[0].ttft
    assert served.goodput(first, 1.0) == pytest.approx(1 / served.seconds)
    assert served.goodput(first / 2, 1.0) == 0
    assert served.goodput(1.0, FIXED / 2) == 0


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="of no values"):
        percentile([], 99)
