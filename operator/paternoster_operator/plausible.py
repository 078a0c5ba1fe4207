"""Whether an engine's numbers can be: by its pod's own settings, and by what it reported before. Pure.

What passes is not thereby true. But nothing that passes is more than one replica of that size could have done, so no
engine moves what the law sees by more than its share.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement

from paternoster_contract.stats import EngineStats, begins_anew, find_growth

STEPS_PER_SECOND = 1000
"""More than any engine makes: each advances a sequence by a token, or ends it."""
TOKENS_PER_SECOND = 2_000_000
"""More prompt tokens than any engine computes or finds in its cache."""
REQUESTS_PER_SECOND = 10_000
"""More than an engine's HTTP server takes or refuses."""
LARGEST_GROUP = 4096
"""Sequences of one request in the queue beyond its limit."""
TOTAL_SECONDS = 5
"""Where the seconds of all steps are in the sums over steps."""
_TIMED = frozenset(i for i, pair in enumerate(combinations_with_replacement(range(6), 2)) if 5 in pair)
"""Where products with seconds are; all others are of counts."""
LONGEST_CONTEXT = 2**24
"""Tokens of one sequence."""
SLACK_SECONDS = 60.0
"""The time between two looks is no engine's time between two answers: it may have been kept from its CPU."""

_BY_SEQUENCE = ("generation_tokens_total", "inter_token_count_total", "first_token_count_total", "preemptions_total",
                "requests_preempted_total", "queue_count_total")  # fmt: skip
_BY_TOKEN = ("prompt_tokens_total", "cached_prompt_tokens_total", "computed_tokens_total", "recomputed_tokens_total")
_BY_REQUEST = (
    "requests_total", "requests_finished_total", "requests_rejected_total", "requests_rejected_full_total",
)  # fmt: skip
_SECONDS = ("queue_seconds_total", "first_token_seconds_total", "inter_token_seconds_total")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a report is not believed."""

    field: str
    text: str

    def __str__(self) -> str:
        return self.text


def find_implausible(
    stats: EngineStats, last: EngineStats | None, seconds: float, *, capacity: int | None, queue: int
) -> Refusal | None:
    """Why ``stats`` cannot be, ``seconds`` after ``last``; None where they can.

    ``capacity`` and ``queue``: max_num_seqs and max_queued_requests of the pod, where its manifest says so.
    """
    if capacity is not None and stats.capacity != capacity:
        return Refusal("capacity", f"capacity is {stats.capacity}: must be {capacity}, as its pod says")
    for field, most in (
        ("live_cap", stats.capacity),
        ("token_budget", stats.max_batched_tokens),
        ("running", stats.capacity),
        ("waiting", queue + stats.capacity + LARGEST_GROUP),
        ("kv_blocks_used", stats.kv_blocks),
        ("kv_blocks_cached", stats.kv_blocks),
    ):
        value = getattr(stats, field)
        if value > most:
            return Refusal(field, f"{field} is {value}: must be at most {most}")
    return None if last is None else _find_leap(stats, last, seconds + SLACK_SECONDS, queue)


def _find_leap(stats: EngineStats, last: EngineStats, seconds: float, queue: int) -> Refusal | None:
    """A counter that grew by more than it can; one that begins anew, or of a restarted engine, was 0 after ``last``."""
    same = stats.instance == last.instance
    # Every request in the queue and in the batch waits all the time, and one that ends adds what it waited before.
    waits = (queue + stats.capacity + LARGEST_GROUP) * 86_400.0
    for fields, most in (
        (_BY_SEQUENCE, stats.capacity * STEPS_PER_SECOND * seconds),
        (_BY_TOKEN, TOKENS_PER_SECOND * seconds),
        (_BY_REQUEST, REQUESTS_PER_SECOND * seconds),
        (_SECONDS, waits),
    ):
        for field in fields:
            growth = find_growth(getattr(stats, field), getattr(last, field) if same else 0)
            if growth > most:
                grew = f"{field} grew by {growth} in {seconds - SLACK_SECONDS:.0f} s"
                return Refusal(field, f"{grew}: must be at most {most:.0f}")
    return _steps_leap(stats, last.step_sums if same else (), seconds)


def _steps_leap(stats: EngineStats, before: tuple[float, ...], seconds: float) -> Refusal | None:
    """Refuse sums over steps beyond what an engine of that size makes: too many steps, or too large ones."""
    field, tokens = "step_sums", max(stats.max_batched_tokens, stats.capacity)
    largest = (
        1.0, tokens, stats.capacity, stats.capacity * LONGEST_CONTEXT, tokens * LONGEST_CONTEXT, seconds,
    )  # fmt: skip
    products = [a * b for a, b in combinations_with_replacement(largest, 2)]
    # They are measured together, so one that fell is the beginning of all.
    anew = not before or any(map(begins_anew, stats.step_sums, before))
    for i, value in enumerate(stats.step_sums):
        growth = value if anew else value - before[i]
        if i not in _TIMED and 0 < growth < 1:
            # A fit divides by it.
            return Refusal(field, f"{field}[{i}] grew by {growth:.6g}: must be whole, a product of counts")
        # Steps do not overlap, so all of them together took no longer than the time between.
        most = seconds if i == TOTAL_SECONDS else products[i] * STEPS_PER_SECOND * seconds
        if growth > most:
            grew = f"{field}[{i}] grew by {growth:.6g} in {seconds - SLACK_SECONDS:.0f} s"
            return Refusal(field, f"{grew}: must be at most {most:.6g}")
    return None
