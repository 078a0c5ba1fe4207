"""Few combinations of many settings, in which every two settings meet in every pair of their values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Values = Mapping[str, Sequence[Any]]
Combination = dict[str, Any]


def pairwise(values: Values) -> Iterator[Combination]:
    """Combinations of ``values`` that contain every pair.

    Greedily: each combination begins with a missing pair and adds, setting by setting, the value that meets the most
    missing pairs. Deterministic.
    """
    missing = {
        pair
        for a, b in combinations(values, 2)
        for pair in product(((a, x) for x in values[a]), ((b, y) for y in values[b]))
    }
    order = sorted(values, key=lambda name: -len(values[name]))
    while missing:
        chosen = dict(min(missing, key=repr))
        for name in order:
            if name not in chosen:
                chosen[name] = max(values[name], key=lambda value: len(_met({**chosen, name: value}, missing)))
        missing -= _met(chosen, missing)
        yield {name: chosen[name] for name in values}


def every(values: Values) -> Iterator[Combination]:
    """The full product."""
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _met(chosen: Combination, missing: set[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    return {(a, b) for a, b in missing if chosen.get(a[0]) == a[1] and chosen.get(b[0]) == b[1]} if chosen else set()
