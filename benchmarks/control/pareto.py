"""Which of several outcomes no other beats: more requests within their objective for no more GPU-hours."""

from collections.abc import Iterable, Sequence

from control.evaluate import Score


def front(scores: Sequence[Score]) -> list[bool]:
    """For each score, whether none is at least as good in both ways and better in one."""
    return [not any(_dominates(other, score) for other in scores) for score in scores]


def _dominates(a: Score, b: Score) -> bool:
    as_good = a.slo_attainment >= b.slo_attainment and a.gpu_hours <= b.gpu_hours
    return as_good and (a.slo_attainment > b.slo_attainment or a.gpu_hours < b.gpu_hours)


def best(scores: Iterable[Score], target: float) -> int | None:
    """Index of the fewest GPU-hours at an attainment of at least ``target``, else of the highest attainment.

    None without scores.
    """
    numbered = list(enumerate(scores))
    if not numbered:
        return None
    enough = [(score.gpu_hours, -score.slo_attainment, i) for i, score in numbered if score.slo_attainment >= target]
    if enough:
        return min(enough)[2]
    return min((-score.slo_attainment, score.gpu_hours, i) for i, score in numbered)[2]
