"""Pieces of text that replicas were sent a moment ago, and so will hold before they have reported it. Pure."""

from collections.abc import Sequence

EXPECTED_SECONDS = 2.0
"""Time after which a replica that publishes its cache has reported what it was sent; twice it is the longest wait."""
MAX_PIECES = 2**17
"""Pieces of all replicas in each of two generations, some 20 MiB; more end a generation early."""


class ExpectedPieces:
    """Two generations: the older one is forgotten when the younger one ends."""

    def __init__(self, max_pieces: int = MAX_PIECES) -> None:
        self._max_pieces = max_pieces
        self._young: dict[int, tuple[str, ...]] = {}
        self._old: dict[int, tuple[str, ...]] = {}
        self._began = 0.0

    def add(self, replica: str, chain: Sequence[int], now: float) -> None:
        """``replica`` is sent the text of ``chain``."""
        self._forget_old(now)
        if len(self._young) >= self._max_pieces:
            self._begin_generation()
        young, alone = self._young, (replica,)
        for digest in chain:
            others = young.get(digest)
            if others is None:
                young[digest] = alone
            elif replica not in others:
                young[digest] = (*others, replica)

    def find(self, chain: Sequence[int], now: float) -> dict[str, int]:
        """How many pieces of ``chain`` each replica is expected to hold, those of none left out."""
        self._forget_old(now)
        found: dict[str, int] = {}
        for generation in (self._young, self._old):
            before = None
            for count in range(len(chain), 0, -1) if generation else ():
                replicas = generation.get(chain[count - 1])
                if replicas is None or replicas is before:
                    continue
                before = replicas
                for replica in replicas:
                    found[replica] = max(count, found.get(replica, 0))
        return found

    def remove_replica(self, replica: str) -> None:
        """``replica`` has lost what it was sent."""
        for generation in (self._young, self._old):
            for digest, replicas in list(generation.items()):
                if replica in replicas:
                    generation[digest] = tuple(each for each in replicas if each != replica)

    def _forget_old(self, now: float) -> None:
        periods = (now - self._began) // EXPECTED_SECONDS
        if periods >= 1:
            self._begin_generation()
            self._began += periods * EXPECTED_SECONDS
        if periods >= 2:
            self._old = {}

    def _begin_generation(self) -> None:
        self._old, self._young = self._young, {}
