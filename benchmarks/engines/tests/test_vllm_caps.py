"""Comparison of arms of fixed caps and the law: prices of one fit, and the best cap that keeps the target."""

import pytest

from control.live_cap import SHAPES
from engines.vllm_caps import Arm, Work, draw_lengths, find_best, fit_prices, markdown, rate

PRICES = (0.04, 0.003, 0.004)
"""Seconds of a step, of a token of a prompt, and of a decoding sequence."""


def arm(name: str, tokens: int, *, preempted: float = 0.0, slower: float = 1.0, again: int = 0) -> Arm:
    """A hundred steps of eight sequences, on a machine that is ``slower`` than in other arms."""
    works: list[Work] = [(50.0, 200.0 + again, 400.0), (50.0, 600.0, 380.0)]
    windows = [(work, slower * sum(price * count for price, count in zip(PRICES, work, strict=True))) for work in works]
    steps, prompts, decodes = (sum(counts) for counts in zip(*works, strict=True))
    seconds = sum(each for _, each in windows)
    return Arm(
        "long tail", name, 0, tokens, (steps, prompts, decodes), seconds, 1.0, preempted, 100, 0.0, [8], 5.0, windows
    )


def test_what_a_machine_does_beside_counts_for_no_arm() -> None:
    arms = [arm("8", 800), arm("8", 800, slower=1.3), arm("12", 800, again=100), arm("12", 800, again=100, slower=1.3)]
    prices = fit_prices(arms)
    assert arms[0].tokens_per_processor_second > 1.2 * arms[1].tokens_per_processor_second
    assert rate(arms[0], prices) == pytest.approx(rate(arms[1], prices))
    assert rate(arms[2], prices) < 0.99 * rate(arms[0], prices)


def test_the_best_cap_is_the_fastest_that_keeps_the_target() -> None:
    arms = [arm("4", 500), arm("8", 800), arm("12", 900, preempted=0.1), arm("Goodput", 855)]
    prices = fit_prices(arms)
    assert find_best(arms, "PreemptionRate", prices)[0] == "8"
    assert find_best(arms, "Goodput", prices)[0] == "12"
    assert "0.950 of 12" in markdown(arms)


def test_every_arm_has_the_same_requests() -> None:
    first, second = (draw_lengths(SHAPES["long tail"], 3) for _ in range(2))
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
