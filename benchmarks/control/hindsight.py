"""The best fleet that no policy steers, for traffic seen before: the fewest replicas that any cap makes enough."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from control.contenders import Choice
from control.evaluate import Score


def searched(choices: Sequence[Choice], score: Callable[[Choice], Score], targets: Iterable[float]) -> dict[int, Score]:
    """Scores by index in ``choices``, of those that decide how few ``replicas`` attain each of ``targets``.

    Of a size every cap is tried, the highest first, until one attains the target. Sizes are bisected: more replicas
    are taken to serve no worse, and those of a fleet that stands still cost in proportion.
    """
    by_size: dict[int, list[int]] = {}
    for index, choice in enumerate(choices):
        by_size.setdefault(choice["replicas"], []).append(index)
    scores: dict[int, Score] = {}

    def attained(index: int) -> float:
        if index not in scores:
            scores[index] = score(choices[index])
        return scores[index].slo_attainment

    def enough(size: int, target: float) -> bool:
        return any(attained(index) >= target for index in reversed(by_size[size]))

    sizes = sorted(by_size)
    for target in targets:
        bisect_left(sizes, True, key=partial(enough, target=target))
    return scores
