"""Which slots hold which pieces of text: pairs in sorted arrays, 14 bytes each and what the arrays have to spare.

A dictionary of Python integers takes about 90 bytes a pair, and 100 engines with 100,000 pieces each would not fit in
1 GiB. Pairs are spread over buckets by the first bits of their digest, so that an insertion moves a few kilobytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Set

BUCKET_BITS = 12
"""4,096 buckets: 2,400 pairs in each at ten million."""
DIGEST_BITS = 64
MAX_TOKENS = 2**32 - 1
MAX_SLOTS = 2**16
BUCKETS = 2**BUCKET_BITS
_SHIFT = DIGEST_BITS - BUCKET_BITS

Holders = tuple["array[int]", "array[int]"]
"""Slots in ascending order, and the tokens of each."""


class PieceTable:
    """Pairs of a digest and a slot, each with a number of tokens. A digest is a number below 2**64."""

    def __init__(self) -> None:
        self._buckets: list[_Bucket | None] = [None] * BUCKETS
        self._swept = 0
        self.pairs = 0
        """Pairs in the table, of slots in use or not."""

    def add(self, digest: int, slot: int, tokens: int) -> bool:
        """Add a pair, or change its tokens; returns whether it is new."""
        bucket = self._buckets[digest >> _SHIFT]
        if bucket is None:
            bucket = self._buckets[digest >> _SHIFT] = _Bucket()
        at, found = bucket.find(digest, slot)
        if found:
            bucket.tokens[at] = tokens
            return False
        bucket.digests.insert(at, digest)
        bucket.slots.insert(at, slot)
        bucket.tokens.insert(at, tokens)
        self.pairs += 1
        return True

    def remove(self, digest: int, slot: int) -> bool:
        """Remove a pair; returns whether it was there."""
        bucket = self._buckets[digest >> _SHIFT]
        if bucket is None:
            return False
        at, found = bucket.find(digest, slot)
        if found:
            del bucket.digests[at], bucket.slots[at], bucket.tokens[at]
            self.pairs -= 1
        return found

    def find_holders(self, digest: int) -> Holders | None:
        """Who holds a piece, slots that are in use no longer included; None where no slot does."""
        bucket = self._buckets[digest >> _SHIFT]
        if bucket is None:
            return None
        digests = bucket.digests
        begin = bisect_left(digests, digest)
        if begin == len(digests) or digests[begin] != digest:
            return None
        end = bisect_right(digests, digest, begin)
        return bucket.slots[begin:end], bucket.tokens[begin:end]

    def sweep_buckets(self, retired: Set[int], buckets: int = 1) -> bool:
        """Remove the pairs of ``retired`` slots from the next ``buckets``; returns whether the last one is among them.

        A whole sweep is from one call that returns ``True`` to the next.
        """
        last = False
        for _ in range(buckets):
            bucket = self._buckets[self._swept]
            if bucket is not None:
                self.pairs -= bucket.remove_slots(retired)
                if not bucket.digests:
                    self._buckets[self._swept] = None
            self._swept = (self._swept + 1) % BUCKETS
            last = last or self._swept == 0
        return last


class _Bucket:
    """Parallel arrays, in ascending order of digest and slot."""

    __slots__ = ("digests", "slots", "tokens")

    def __init__(self) -> None:
        self.digests = array("Q")
        self.slots = array("H")
        self.tokens = array("I")

    def find(self, digest: int, slot: int) -> tuple[int, bool]:
        """Where a pair is or belongs, and whether it is there."""
        digests, slots = self.digests, self.slots
        at, end = bisect_left(digests, digest), len(digests)
        if at == end or digests[at] != digest:
            return at, False
        if slots[at] != slot:
            end = bisect_right(digests, digest, at)
            at = bisect_left(slots, slot, at, end)
        return at, at < end and slots[at] == slot

    def remove_slots(self, retired: Set[int]) -> int:
        """Remove the pairs of these slots; returns how many there were."""
        if retired.isdisjoint(self.slots):
            return 0
        remaining = [at for at, slot in enumerate(self.slots) if slot not in retired]
        removed = len(self.slots) - len(remaining)
        self.digests = _select_values(self.digests, remaining)
        self.slots = _select_values(self.slots, remaining)
        self.tokens = _select_values(self.tokens, remaining)
        return removed


def _select_values(values: "array[int]", positions: Iterable[int]) -> "array[int]":
    return array(values.typecode, [values[at] for at in positions])
