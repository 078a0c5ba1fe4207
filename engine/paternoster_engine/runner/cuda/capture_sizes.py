"""For how many rows a decode step is captured."""

from bisect import bisect_left
from collections.abc import Sequence

SMALLEST = (1, 2, 4, 8, 16, 24)


def capture_sizes(capacity: int) -> tuple[int, ...]:
    """Ascending sizes up to ``capacity``, which is the last: 1, 2, 4, 8, 16, 24, 32, 48, 64, 96 and so on.

    Beyond the smallest, two for each doubling: at most a third of a step's rows is padding, and 512 rows need 15
    graphs. Each costs a fraction of a second at start, which a fleet that scales up waits for.
    """
    sizes = list(SMALLEST)
    size = 32
    while size < capacity:
        sizes += (size, size + size // 2)
        size *= 2
    return (*(size for size in sizes if size < capacity), capacity)


def fitting_size(sizes: Sequence[int], rows: int) -> int:
    """The smallest of the ascending ``sizes`` that holds ``rows``; raises ``ValueError`` when none does."""
    index = bisect_left(sizes, rows)
    if index == len(sizes):
        raise ValueError(f"rows is {rows}: must be at most {sizes[-1]}, the largest size captured")
    return sizes[index]
