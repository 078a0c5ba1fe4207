"""Where the last tokens of a sequence stood before (prompt lookup), in constant time a token."""

from collections.abc import Sequence
from typing import Protocol

GRAM = 3
"""Tokens that must have stood there before."""
LONGEST = 2**14
"""Tokens that are remembered at most, about 150 bytes each."""
_BASE = 2**21
"""Above any vocabulary's size, so that a gram is one number."""


class Tokens(Protocol):
    @property
    def num_tokens(self) -> int: ...

    def tokens(self, start: int, stop: int) -> list[int]: ...


class Lookup:
    """Follows one sequence that only gets longer."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """Gram -> where it ended last."""
        self._read = 0
        """Tokens whose grams are known, but for the gram that they end with."""

    def propose(self, sequence: Tokens, most: int) -> Sequence[int]:
        """Up to ``most`` tokens that followed the last ones when these stood there before.

        What repeats itself is taken to go on so: the tokens may come round more than once.
        """
        end = sequence.num_tokens
        if end <= GRAM:
            return []
        first = max(0, self._read - GRAM, end - LONGEST)
        tokens, places = sequence.tokens(first, end), self._places
        if len(places) + len(tokens) > LONGEST + GRAM:
            places.clear()
        for last in range(GRAM, len(tokens)):
            places[_gram(tokens, last)] = first + last
        self._read = end
        place = places.get(_gram(tokens, len(tokens)))
        if place is None:
            return []
        followed = sequence.tokens(place, min(end, place + most))
        return [followed[i % len(followed)] for i in range(most)]


def _gram(tokens: Sequence[int], end: int) -> int:
    return (tokens[end - 3] * _BASE + tokens[end - 2]) * _BASE + tokens[end - 1]
