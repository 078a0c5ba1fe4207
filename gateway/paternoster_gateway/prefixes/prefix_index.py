"""Which replicas hold how much of a prompt: an index of the pieces of text that they report, or were sent.

A text is a chain of digests, one for each of its pieces, each over all text up to its end. A replica that publishes its
cache is believed between a snapshot and the first gap in its events. For one that does not, the index remembers what it
was sent, in two generations: the older one is forgotten when the younger one is full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paternoster_contract.shares.places import SharedPlaces
from paternoster_gateway.prefixes.piece_table import BUCKETS, MAX_SLOTS, MAX_TOKENS, Holders, PieceTable

MAX_PIECES = 2**24
"""Most pieces of all replicas, about 300 MiB, shared out by namespace; the replicas of one have equal parts."""
MAX_REPLICAS = 2**14
"""Shared out by namespace; with two slots each, and a quarter of all that are not swept yet, one is always free."""
MAX_PIECES_OF_REPLICA = 2**18
"""Pieces of one replica: 262,144, about 5 MiB."""
PIECES_PER_SWEPT_BUCKET = 64
"""While there are retired slots, each change clears a bucket of them, and one more for each of these pieces."""
MAX_PROBES = 128
"""Pieces of a chain that a search looks up; of a longer chain one of several, and those around what it finds."""

Piece = tuple[int, int]
"""A digest, and the prompt tokens up to the end of its piece."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The longest beginning of a chain that a replica holds: its deepest piece decides, whatever is missing before."""

    pieces: int
    tokens: int
    """Prompt tokens that these pieces stand for."""


NO_PREFIX = Prefix(0, 0)


class PrefixIndex:
    """Pieces by replica; a replica is any name, such as its URL."""

    def __init__(
        self,
        max_pieces: int = MAX_PIECES,
        max_of_replica: int = MAX_PIECES_OF_REPLICA,
        max_replicas: int = MAX_REPLICAS,
    ) -> None:
        self.namespaces: Mapping[str, str] = {}
        """Namespace of each replica that may come; one that is not there counts for a namespace without a name."""
        self._places = SharedPlaces[str](max_replicas)
        self._share: int | None = None
        """Pieces of each namespace; None: to be computed."""
        self._max_pieces = max_pieces
        self._max_of_replica = max_of_replica
        self._table = PieceTable()
        self._slots: dict[str, list[int]] = {}
        """Slots of a replica: the one that is written to, then that of the generation before, if there is one."""
        self._counts: dict[int, int] = {}
        """Pieces of each slot in use."""
        self._replicas: dict[int, str] = {}
        """The replica of each slot in use."""
        self._retired: set[int] = set()
        self._sweeping: set[int] = set()
        """Retired slots of which nothing is left after the sweep under way."""
        self._next_slot = 0
        self.refused = 0
        """Pieces that had no room."""

    def __contains__(self, replica: str) -> bool:
        return replica in self._slots

    @property
    def replicas(self) -> Sequence[str]:
        """Replicas with anything in the index."""
        return list(self._slots)

    @property
    def pairs(self) -> int:
        """Pieces of all replicas in memory, forgotten ones that are not removed yet included."""
        return self._table.pairs

    def count(self, replica: str) -> int:
        """Pieces of ``replica``."""
        return sum(self._counts[slot] for slot in self._slots.get(replica, ()))

    def store(self, replica: str, pieces: Sequence[Piece]) -> None:
        """Add what ``replica`` holds now. Beyond its share of the memory, pieces are refused and counted."""
        if (slots := self._slots.get(replica) or self._add_replica(replica)) is None:
            self.refused += len(pieces)
        else:
            self._add(slots[0], pieces, self._limit_of(replica))

    def remove(self, replica: str, digests: Sequence[int]) -> None:
        """Remove what ``replica`` holds no longer."""
        self._sweep_retired(len(digests))
        for slot in self._slots.get(replica, ()):
            for digest in digests:
                self._counts[slot] -= self._table.remove(digest, slot)

    def remove_replica(self, replica: str) -> None:
        """Forget all that ``replica`` holds; later changes free the memory."""
        for slot in self._slots.pop(replica, ()):
            self._retire_slot(slot)
        self._places.release(replica)
        self._share = None

    def store_expected(self, replica: str, pieces: Sequence[Piece], most: int) -> None:
        """Add what ``replica`` was sent, which does not publish what it holds; ``most``: pieces that it may hold."""
        if (slots := self._slots.get(replica) or self._add_replica(replica)) is None:
            self.refused += len(pieces)
            return
        limit = max(1, min(self._limit_of(replica), most) // 2)
        if (count := self._counts[slots[0]]) and count + len(pieces) > limit:
            self.begin_generation(replica)
        self._add(slots[0], pieces, limit)

    def begin_generation(self, replica: str) -> None:
        """Forget all but what ``replica`` was sent since the last call; nothing happens where it was sent nothing."""
        slots = self._slots.get(replica)
        if slots is not None:
            for slot in slots[1:]:
                self._retire_slot(slot)
            slots[:] = self._new_slot(replica), slots[0]

    def find(self, chain: Sequence[int]) -> Mapping[str, Prefix]:
        """The longest beginning of ``chain`` that each replica holds; replicas that hold none are left out.

        Pieces are looked up from the last one on, until each replica in the index was found. Of a chain longer than
        :data:`MAX_PROBES` what is shorter than a step between them may be found shorter, or not at all.
        """
        found: dict[str, Prefix] = {}
        length, before = len(chain), None
        step = -(-length // MAX_PROBES)
        probes = range(length - 1, -1, -step) if step else ()
        for at in probes if step <= 1 else (*probes, 0):
            if len(found) == len(self._slots):
                break
            held = self._table.find_holders(chain[at])
            if held is None or held[0] == before:
                continue
            before = held[0]
            if any(slot in self._replicas and self._replicas[slot] not in found for slot in before):
                for place in range(min(at + step, length) - 1, at - 1, -1):
                    self._record_holders(found, place, held if place == at else self._table.find_holders(chain[place]))
        return found

    def _limit_of(self, replica: str) -> int:
        """Pieces that ``replica`` may have: an equal part of what its namespace may."""
        if self._share is None:
            self._share = self._places.share_amount(self._max_pieces, self._max_of_replica)
        return min(self._max_of_replica, self._share // self._places.count_beside(replica))

    def _record_holders(self, found: dict[str, Prefix], place: int, held: Holders | None) -> None:
        """Add the replicas that hold the piece at ``place`` of a chain, and none behind it."""
        for slot, tokens in zip(*held, strict=True) if held is not None else ():
            replica = self._replicas.get(slot)
            if replica is not None and replica not in found:
                found[replica] = Prefix(place + 1, tokens)

    def _add(self, slot: int, pieces: Sequence[Piece], limit: int) -> None:
        self._sweep_retired(len(pieces))
        count = self._counts[slot]
        for at, (digest, tokens) in enumerate(pieces):
            if count >= limit:
                self.refused += len(pieces) - at
                break
            count += self._table.add(digest, slot, min(tokens, MAX_TOKENS))
        self._counts[slot] = count

    def _add_replica(self, replica: str) -> list[int] | None:
        """Its slot; None where its namespace has as many replicas as any other, and there is no room for more."""
        has, evicted = self._places.claim_place(replica, self.namespaces.get(replica, ""))
        if evicted is not None:
            self.remove_replica(evicted)
        if not has:
            return None
        self._share = None
        slots = self._slots[replica] = [self._new_slot(replica)]
        return slots

    def _new_slot(self, replica: str) -> int:
        while self._next_slot in self._replicas or self._next_slot in self._retired:
            self._next_slot = (self._next_slot + 1) % MAX_SLOTS
        slot = self._next_slot
        self._next_slot = (slot + 1) % MAX_SLOTS
        self._replicas[slot], self._counts[slot] = replica, 0
        return slot

    def _retire_slot(self, slot: int) -> None:
        del self._replicas[slot], self._counts[slot]
        self._retired.add(slot)
        while len(self._retired) > MAX_SLOTS // 4:
            self._sweep_retired(PIECES_PER_SWEPT_BUCKET * BUCKETS)

    def _sweep_retired(self, pieces: int) -> None:
        """Free some of what retired slots hold; a slot is free again once a whole sweep has passed it."""
        if self._retired and self._table.sweep_buckets(self._retired, 1 + pieces // PIECES_PER_SWEPT_BUCKET):
            self._retired -= self._sweeping
            self._sweeping = set(self._retired)
