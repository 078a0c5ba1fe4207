"""Which rows of a document fit, shared out by namespace: its bytes, or the rows themselves. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Sized(NamedTuple):
    """One row's place in a document."""

    name: str
    namespace: str
    size: int
    """Bytes, or whatever the document is bounded in."""
    rank: Any
    """Rows of one namespace are kept from the smallest on, such as the time their LLMDeployment was made."""


def rows_beyond_share(rows: Sequence[Sized], capacity: int) -> dict[str, int]:
    """Names of the rows that are left out so that the others have at most ``capacity`` bytes, each with its share.

    Max-min fair over namespaces: while all fits, every namespace has what it wants. Otherwise the largest are cut to
    one share, which is as large as possible, and lose their last rows by rank.
    """
    wanted: dict[str, int] = {}
    for row in rows:
        wanted[row.namespace] = wanted.get(row.namespace, 0) + row.size
    share = fair_share(wanted.values(), capacity)
    used: dict[str, int] = dict.fromkeys(wanted, 0)
    beyond: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: (row.rank, row.name)):
        if used[row.namespace] + row.size > share:
            beyond[row.name] = share
        else:
            used[row.namespace] += row.size
    return beyond


def fair_share(wanted: Iterable[int], capacity: int) -> int:
    """The largest share such that all that is ``wanted``, each cut to it, is at most ``capacity``."""
    left, sizes = capacity, sorted(wanted)
    for number, size in enumerate(sizes):
        if size * (len(sizes) - number) > left:
            return left // (len(sizes) - number)
        left -= size
    return capacity
