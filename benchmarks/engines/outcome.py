"""What clients and engine saw in one half of an arm, and the table of several. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from harness.results import markdown_table, without_repeats
from paternoster_contract.stats import EngineStats
from paternoster_load.results import RequestEnd, RequestResult

SETTLED_AFTER = 60.0
"""Seconds after a change of the traffic from which the law must keep its objective."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A request within both is within the objective; seconds."""

    first_token: float
    between_tokens: float

    def hold_for(self, result: RequestResult) -> bool:
        return (
            result.outcome is RequestEnd.COMPLETED
            and result.ttft is not None
            and result.ttft <= self.first_token
            and (result.tpot or 0.0) <= self.between_tokens
        )


@dataclass(frozen=True, slots=True)
class Half:
    """One half of one arm."""

    arm: str
    repeat: int
    half: int
    within_per_second: float
    requests_per_second: float
    tokens_per_second: float
    preempted_share: float
    """Distinct requests preempted, of those that ended."""
    preempted_share_settled: float
    """Preempted share from 60 s after the change of the traffic; at most that of one request is chance."""
    finished_settled: int
    recomputed_share: float
    """Share of the tokens that went through the model."""
    first_token_p50: float
    first_token_p99: float
    between_tokens_p50: float
    caps: list[int]
    """Live caps as they followed one another."""
    wall_seconds: float
    """Time that it took, whose share the clock had."""
    failed: int


def share_within(result: RequestResult, begin: float, end: float) -> float:
    """Share of a request's time that lies between two moments.

    Summed over requests it counts those of a window without an advantage for short ones or for few at a time, which
    counting ends has, as long as requests at both edges are waited for.
    """
    overlap = min(result.start + result.latency, end) - max(result.start, begin)
    return max(0.0, overlap) / result.latency if result.latency > 0 else float(begin <= result.start < end)


def by_clock(result: RequestResult, clock: Callable[[float], float]) -> RequestResult:
    """Convert a request's times to seconds of ``clock``."""
    start = clock(result.start)
    first = None if result.ttft is None else clock(result.start + result.ttft) - start
    return replace(result, start=start, ttft=first, latency=clock(result.start + result.latency) - start)


def summarize(
    arm: str,
    repeat: int,
    half: int,
    results: Sequence[RequestResult],
    samples: Sequence[tuple[float, EngineStats]],
    span: tuple[float, float],
    limits: Limits,
    clock: Callable[[float], float],
) -> Half:
    """``samples``: at least one at either end of ``span``, and any between.

    All moments are of ``time.perf_counter``; what is reported is in seconds of ``clock``, except when the law must have
    settled, as the law goes by time.
    """
    begin, end = span
    inside = [(when, stats) for when, stats in samples if begin <= when <= end]
    first, last = inside[0], inside[-1]
    settled = next((each for each in inside if each[0] >= begin + SETTLED_AFTER), last)
    wall = end - begin
    begin, end = clock(begin), clock(end)
    ended = [by_clock(result, clock) for result in results if result.outcome is RequestEnd.COMPLETED]
    weights = [(share_within(result, begin, end), limits.hold_for(result)) for result in ended]
    sent = [result for result in ended if begin <= result.start < end and result.ttft is not None]
    waits = [result.ttft for result in sent if result.ttft is not None] or [float("nan")]
    between = [result.tpot for result in sent if result.tpot is not None] or [float("nan")]
    caps = [stats.live_cap for _, stats in inside]
    return Half(
        arm=arm,
        repeat=repeat,
        half=half,
        within_per_second=sum(weight for weight, good in weights if good) / (end - begin),
        requests_per_second=sum(weight for weight, _ in weights) / (end - begin),
        tokens_per_second=grown(first, last, "generation_tokens_total") / (clock(last[0]) - clock(first[0])),
        preempted_share=ratio(first, last, "requests_preempted_total", "requests_finished_total"),
        preempted_share_settled=ratio(settled, last, "requests_preempted_total", "requests_finished_total"),
        finished_settled=int(grown(settled, last, "requests_finished_total")),
        recomputed_share=ratio(first, last, "recomputed_tokens_total", "computed_tokens_total"),
        first_token_p50=float(np.percentile(waits, 50)),
        first_token_p99=float(np.percentile(waits, 99)),
        between_tokens_p50=float(np.percentile(between, 50)),
        caps=without_repeats(caps),
        wall_seconds=wall,
        failed=sum(
            span[0] <= result.start < span[1] and result.outcome is not RequestEnd.COMPLETED for result in results
        ),
    )


Point = tuple[float, EngineStats]


def grown(first: Point, last: Point, name: str) -> float:
    return float(getattr(last[1], name) - getattr(first[1], name))


def ratio(first: Point, last: Point, part: str, whole: str) -> float:
    return grown(first, last, part) / max(1.0, grown(first, last, whole))


COLUMNS = (
    "half", "arm", "within the objective /s", "requests /s", "tokens/s", "preempted", "after 60 s", "computed twice",
    "first token p50 / p99, s", "between tokens, ms", "cap",
)  # fmt: skip


def markdown(halves: Sequence[Half]) -> str:
    """A row for each half and arm: medians of the repeats, with the range of what is within the objective."""
    lines = []
    for half, arm in sorted({(each.half, each.arm) for each in halves}, key=lambda key: (key[0], _order(key[1]))):
        runs = [each for each in halves if (each.half, each.arm) == (half, arm)]
        good = [run.within_per_second for run in runs]
        spread = f" ({min(good):.2f} to {max(good):.2f})" if len(runs) > 1 else ""
        caps = "; ".join(dict.fromkeys(_shorten(run.caps) for run in runs))
        lines.append((
            str(half), arm, f"{median(good):.2f}{spread}", f"{_median(runs, 'requests_per_second'):.2f}",
            f"{_median(runs, 'tokens_per_second'):.0f}", f"{_median(runs, 'preempted_share'):.1%}",
            _settled(runs), f"{_median(runs, 'recomputed_share'):.1%}",
            f"{_median(runs, 'first_token_p50'):.1f} / {_median(runs, 'first_token_p99'):.1f}",
            f"{_median(runs, 'between_tokens_p50') * 1000:.0f}", caps,
        ))  # fmt: skip
    return markdown_table(COLUMNS, lines)


def against_best(halves: Sequence[Half], law: str) -> dict[int, tuple[str, float]]:
    """Fixed cap with the most within the objective, and the law's share of that, by half; medians."""
    found = {}
    for half in sorted({each.half for each in halves}):
        by_arm: dict[str, Any] = {}
        for each in halves:
            if each.half == half:
                by_arm.setdefault(each.arm, []).append(each.within_per_second)
        fixed = {arm: median(values) for arm, values in by_arm.items() if arm.startswith("fixed")}
        if fixed and law in by_arm:
            best = max(fixed, key=lambda arm: fixed[arm])
            found[half] = (best, median(by_arm[law]) / fixed[best] if fixed[best] else float("inf"))
    return found


def _settled(runs: Sequence[Half]) -> str:
    """Nothing where no run was long enough, or no request ended after it."""
    longer = [run for run in runs if run.finished_settled]
    return f"{_median(longer, 'preempted_share_settled'):.1%}" if longer else "-"


def _median(runs: Sequence[Half], name: str) -> float:
    return float(median(getattr(run, name) for run in runs))


def _order(arm: str) -> tuple[bool, int, str]:
    number = arm.rpartition(" ")[2]
    return (not number.isdigit(), int(number) if number.isdigit() else 0, arm)


def _shorten(caps: Sequence[int]) -> str:
    shown = list(map(str, caps if len(caps) <= 8 else [*caps[:4], "...", *caps[-3:]]))
    return " ".join(shown)
