"""Earlier occurrences of the last tokens of a sequence (prompt lookup), in constant time a token."""

from collections.abc import Sequence
from typing import Protocol

NGRAM_LENGTH = 3
"""Tokens that must have occurred before in the same order."""
MAX_INDEXED = 2**14
"""Most tokens that are indexed, about 150 bytes each."""
_BASE = 2**21
"""Above any vocabulary's size, so that an n-gram is one number."""


class TokenSequence(Protocol):
    @property
    def num_tokens(self) -> int: ...

    def slice_tokens(self, start: int, stop: int) -> list[int]: ...


class NgramLookup:
    """Indexes one sequence that only gets longer."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """N-gram -> index after its last occurrence."""
        self._read = 0
        """Tokens whose n-grams are indexed, except the last n-gram."""

    def propose(self, sequence: TokenSequence, most: int) -> Sequence[int]:
        """Up to ``most`` tokens that followed the last ones when these stood there before.

        A repetition is continued: the tokens may be proposed more than once.
        """
        end = sequence.num_tokens
        if end <= NGRAM_LENGTH:
            return []
        first = max(0, self._read - NGRAM_LENGTH, end - MAX_INDEXED)
        tokens, places = sequence.slice_tokens(first, end), self._places
        if len(places) + len(tokens) > MAX_INDEXED + NGRAM_LENGTH:
            places.clear()
        for last in range(NGRAM_LENGTH, len(tokens)):
            places[_ngram_key(tokens, last)] = first + last
        self._read = end
        place = places.get(_ngram_key(tokens, len(tokens)))
        if place is None:
            return []
        followed = sequence.slice_tokens(place, min(end, place + most))
        return [followed[i % len(followed)] for i in range(most)]


def _ngram_key(tokens: Sequence[int], end: int) -> int:
    return (tokens[end - 3] * _BASE + tokens[end - 2]) * _BASE + tokens[end - 1]
