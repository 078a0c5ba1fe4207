"""Pieces of texts tied to rows of cached blocks, and what changed of them; pure.

A piece stands for the text of a prompt up to some token, and is kept while all full blocks up to there are cached. A
row that leaves the cache takes the rows behind it along, since no request finds these.
"""

from collections.abc import Callable, Sequence

MAX_ROW_PIECES = 16
"""Pieces of one row; the oldest is removed for one more."""
MAX_PIECES = 2**18
"""Pieces of all rows, as many as a gateway keeps of a replica; more are left out."""


class CachedRow:
    """One block of a prompt, found by its hash."""

    __slots__ = ("children", "digests", "key", "num_tokens", "parent")

    def __init__(self, key: bytes, num_tokens: int, parent: "CachedRow | None") -> None:
        """``num_tokens``: of the prompt, up to its end."""
        self.key = key
        self.num_tokens = num_tokens
        self.parent = parent
        self.children: list[CachedRow] = []
        self.digests: list[int] = []


class UntiedPrompt:
    """Pieces of a prompt, and how far they are tied."""

    __slots__ = ("num_tied", "pieces", "row")

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        """``pieces``: tokens and digest of each, in their order."""
        self.pieces = pieces
        self.num_tied = 0
        self.row: CachedRow | None = None
        """The last row that was passed."""


class TextIndex:
    """Holds at most one row for each cached block, and a bounded number of pieces."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._rows: dict[bytes, CachedRow] = {}
        self._homes: dict[int, CachedRow] = {}
        self._changed: dict[int, int] = {}
        self._cleared = False

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    @property
    def pieces(self) -> dict[int, int]:
        """Tokens by digest."""
        return {digest: row.num_tokens for digest, row in self._homes.items()}

    def attach_pieces(self, keys: Sequence[bytes], prompt: UntiedPrompt, is_cached: Callable[[bytes], bool]) -> bool:
        """Tie the pieces of ``prompt`` to its blocks ``keys``, from the first block that was not cached the last time.

        A piece that ends inside a block belongs to the block before. Returns whether all are tied: false where their
        blocks are not all cached yet.
        """
        row, pieces = prompt.row, prompt.pieces
        if row is not None and self._rows.get(row.key) is not row:  # it left the cache meanwhile
            row, prompt.num_tied = None, 0
        place = prompt.num_tied
        for number in range(row.num_tokens // self.block_size if row is not None else 0, len(keys)):
            if place == len(pieces):
                break
            key, parent = keys[number], row
            found = self._rows.get(key)
            if found is None:
                if not is_cached(key):
                    break
                found = self._rows[key] = CachedRow(key, (number + 1) * self.block_size, parent)
                if parent is not None:
                    parent.children.append(found)
            row = found
            while place < len(pieces) and pieces[place][0] < row.num_tokens + self.block_size:
                if pieces[place][0] >= row.num_tokens:
                    self._tie_piece(pieces[place][1], row)
                place += 1
        prompt.row, prompt.num_tied = row, place
        return place == len(pieces)

    def remove_key(self, key: bytes) -> None:
        """A block is not cached any more."""
        row = self._rows.get(key)
        if row is None:
            return
        if row.parent is not None:
            row.parent.children.remove(row)
        left = [row]
        while left:
            node = left.pop()
            left += node.children
            del self._rows[node.key]
            for digest in node.digests:
                del self._homes[digest]
                self._changed[digest] = 0

    def clear(self) -> None:
        """No block is cached any more."""
        self._rows.clear()
        self._homes.clear()
        self._changed.clear()
        self._cleared = True

    def take_changes(self) -> tuple[bool, dict[int, int]]:
        """Whether everything was removed since the last time, and then tokens by digest; 0 for a piece that is gone."""
        cleared, changed = self._cleared, self._changed
        self._cleared, self._changed = False, {}
        return cleared, changed

    def _tie_piece(self, digest: int, row: CachedRow) -> None:
        home = self._homes.get(digest)
        if home is row or (home is None and len(self._homes) == MAX_PIECES):
            return
        if home is not None:
            home.digests.remove(digest)
        if len(row.digests) == MAX_ROW_PIECES:
            oldest = row.digests.pop(0)
            del self._homes[oldest]
            self._changed[oldest] = 0
        row.digests.append(digest)
        self._homes[digest] = row
        self._changed[digest] = row.num_tokens
