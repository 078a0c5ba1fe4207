"""The virtual closed loop: what fixed caps do where memory is scarce, and that the law finds the best of them."""

from random import Random

import pytest

from control.live_cap import MACHINES, SHAPES, TARGET, Arm, Machine, find_best, run_fixed, run_law

VLLM, _, OURS, BUSY_VLLM = MACHINES
SHORT = SHAPES["answers of 64"]


def test_a_long_tail_has_the_mean_of_its_shape() -> None:
    rng = Random(0)
    shape = SHAPES["long tail"]
    answers = [shape.draw_lengths(rng)[1] for _ in range(20_000)]
    assert 0.95 * shape.answer < sum(answers) / len(answers) < 1.05 * shape.answer
    assert max(answers) == 8 * shape.answer


def test_the_best_cap_is_the_fastest_that_keeps_the_target() -> None:
    arms = {8: Arm(100, 0.0, 0, [8]), 9: Arm(110, 0.02, 0, [9]), 10: Arm(120, 0.3, 0, [10])}
    assert find_best(arms, "PreemptionRate") == 9
    assert find_best(arms, "Goodput") == 10
    assert find_best({8: arms[10], 9: arms[10]}, "PreemptionRate") == 8, "the lowest where none keeps it"


def test_more_sequences_than_memory_holds_are_preempted() -> None:
    few, many = (run_fixed(VLLM, SHORT, cap, 150, 0) for cap in (8, 32))
    assert few.preempted_share == 0
    assert many.preempted_share > 0.3
    assert many.repeated_share > 0.2


@pytest.mark.parametrize("machine", [VLLM, OURS], ids=["vllm", "ours"])
def test_few_preemptions_cost_no_throughput(machine: Machine) -> None:
    """Ten sequences are the most of this shape that keep the target, on either machine."""
    best = run_fixed(machine, SHORT, 10, 300, 0)
    law = run_law(machine, [SHORT], "PreemptionRate", 300, 0)[0]
    assert best.preempted_share <= TARGET
    assert law.preempted_share <= TARGET
    assert law.tokens_per_second >= 0.97 * best.tokens_per_second


def test_the_first_cut_on_a_slow_engine_goes_to_what_memory_holds() -> None:
    """Half a minute in, one request has ended, and what ran was young for most of it."""
    for draw in range(2):
        law = run_law(BUSY_VLLM, [SHAPES["answers of 128"]], "PreemptionRate", 120, draw)[0]
        assert law.caps[0] == 32
        assert 5 <= law.caps[1] <= 7


def test_goodput_is_not_lost_to_tokens_computed_again() -> None:
    """Eleven sequences are the fastest fixed cap, and the highest makes a tenth fewer tokens."""
    highest = run_fixed(OURS, SHORT, 32, 300, 0)
    law = run_law(OURS, [SHORT], "Goodput", 300, 0)[0]
    assert law.tokens_per_second > 1.05 * highest.tokens_per_second


def test_the_cap_follows_what_requests_weigh() -> None:
    heavy, light, again = run_law(
        VLLM, [SHORT, SHAPES["answers of 6"], SHAPES["answers of 128"]], "PreemptionRate", 240, 0
    )
    assert heavy.caps[-1] <= 11
    assert light.caps[-1] == 32
    assert light.preempted_share == 0
    assert again.caps[-1] <= 7
