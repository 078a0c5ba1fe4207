"""What a half of an arm counts, the clock it goes by, and the table."""

from typing import Any

import pytest

from engines.closed_loop import ClosedLoop, Shape
from engines.outcome import Half, Limits, against_best, markdown, share_within, summarize
from harness.processes import ProcessorClock
from paternoster_contract.stats import EngineStats
from paternoster_load.results import RequestEnd, RequestResult
from paternoster_traces.prompts import PromptSource

LIMITS = Limits(first_token=5, between_tokens=1)


def result(start: float, seconds: float, *, first: float = 1, tokens: int = 11, **fields: Any) -> RequestResult:
    each = {"outcome": RequestEnd.COMPLETED, "output_tokens": tokens, "ttft": first, "latency": seconds, **fields}
    return RequestResult(0, start, 4, **each)


def stats(cap: int, **counters: int) -> EngineStats:
    names = [name for name in EngineStats.model_fields if name.endswith("_total")]
    return EngineStats.model_construct(live_cap=cap, **{**dict.fromkeys(names, 0), **counters})


def half(arm: str, within: float, number: int = 1, repeat: int = 0) -> Half:
    values = dict.fromkeys(Half.__dataclass_fields__, 0.0)
    return Half(**{**values, "arm": arm, "repeat": repeat, "half": number, "within_per_second": within, "caps": [4]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "seconds", "share"),
    [(12, 4, 1), (8, 4, 0.5), (18, 8, 0.25), (0, 5, 0), (25, 5, 0), (5, 20, 0.5)],
    ids=["inside", "over the begin", "over the end", "before", "after", "longer than the half"],
)
def test_a_request_counts_by_the_share_of_its_time(start: float, seconds: float, share: float) -> None:
    assert share_within(result(start, seconds), 10, 20) == share


def test_a_half_is_what_clients_and_engine_saw_in_it() -> None:
    results = [result(12, 4), result(14, 8, first=6), result(18, 4), result(11, 3, outcome=RequestEnd.LOST)]
    first, last = stats(32), stats(
        16, generation_tokens_total=400, requests_finished_total=20, requests_preempted_total=5,
        computed_tokens_total=500, recomputed_tokens_total=50,
    )  # fmt: skip
    samples = [(9.0, stats(8)), (10.0, first), (15.0, stats(16)), (20.0, last), (30.0, stats(4))]
    found = summarize("a", 0, 1, results, samples, (10, 20), LIMITS, lambda when: when)
    # One whole, half of one that ended after the half, and three quarters of one whose first token was late.
    assert (found.within_per_second, found.requests_per_second) == (0.15, 0.225)
    assert (found.tokens_per_second, found.preempted_share, found.recomputed_share) == (40, 0.25, 0.1)
    assert (found.caps, found.failed, found.finished_settled) == ([32, 16], 1, 0)


def test_times_are_those_of_the_clock_and_the_law_settles_by_time() -> None:
    """The clock goes at half the speed of time, so that latencies are half as long and rates twice as high."""
    samples = [(when, stats(4, requests_finished_total=int(when), generation_tokens_total=int(10 * when)))
               for when in (0.0, 50.0, 70.0, 100.0)]  # fmt: skip
    found = summarize("a", 0, 1, [result(0, 100, first=8, tokens=93)], samples, (0, 100), LIMITS, lambda when: when / 2)
    assert found.within_per_second == 1 / 50
    assert (found.first_token_p50, found.between_tokens_p50) == (4, 0.5)
    assert (found.tokens_per_second, found.wall_seconds, found.finished_settled) == (20, 100, 30)


def test_the_clock_is_a_line_between_two_readings() -> None:
    clock = ProcessorClock.__new__(ProcessorClock)
    clock._when, clock._cpu_seconds = [10.0, 20.0, 30.0], [1.0, 6.0, 6.0]
    assert [clock.at(when) for when in (5, 10, 14, 20, 25, 40)] == [1, 1, 3, 6, 6, 6]


def test_the_law_is_compared_with_the_best_fixed_cap_of_each_half() -> None:
    halves = [
        half(arm, within, number, repeat)
        for repeat in range(3)
        for arm, values in {"fixed 4": (2.0, 9.0), "fixed 32": (8.0, 3.0), "law, Goodput": (8.8, 4.5)}.items()
        for number, within in enumerate(values, 1)
    ]
    assert against_best(halves, "law, Goodput") == {1: ("fixed 32", pytest.approx(1.1)), 2: ("fixed 4", 0.5)}
    assert against_best(halves, "law, PreemptionRate") == {}
    rows = [line.split(" | ")[:3] for line in markdown(halves).splitlines()[2:]]
    assert [row[1] for row in rows] == ["fixed 4", "fixed 32", "law, Goodput"] * 2
    assert rows[0] == ["| 1", "fixed 4", "2.00 (2.00 to 2.00)"]
    assert " | - | " in markdown(halves), "no half lasted until the law must have settled"


def test_each_arm_has_the_same_requests_in_the_shape_of_the_half() -> None:
    prompts = PromptSource(range(1000))

    def draw() -> list[Any]:
        load = ClosedLoop(None, prompts, Shape(4, 6))  # type: ignore[arg-type]
        short = [load._next() for _ in range(50)]
        load.shape = Shape(40, 60)
        return [*short, *(load._next() for _ in range(50))]

    requests = draw()
    assert requests == draw()
    for part, prompt, answer in ((requests[:50], 4, 6), (requests[50:], 40, 60)):
        assert all(prompt / 2 <= len(request.prompt) <= 1.5 * prompt for request in part)
        assert all(answer / 2 <= request.max_tokens <= 1.5 * answer for request in part)
