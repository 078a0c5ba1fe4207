"""Which pieces of text chains the prefix cache can serve now: pieces tied to rows of blocks, as a tree of cached rows.

A piece stands for the text of a prompt up to some token. It is resident while a request with just that text would find
all of its full rows: each row of the layer groups without a window from the first on, and of those with one the rows
that its next token sees. A row that leaves the cache takes the rows behind it along, since no request finds these; they
return with the next request that passes them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from paternoster_engine.core.kv.cache_events import KEY_BYTES
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.text_piece import TextPiece

MAX_ROW_PIECES = 16
"""Pieces of one row; one more removes the oldest. Texts that differ where no token does would have any number."""


class CachedRow:
    """One row of blocks, found by its key after its ``parent``."""

    __slots__ = ("children", "digests", "key", "parent", "resident", "row", "runs")

    def __init__(self, key: bytes, row: int, parent: "CachedRow | None", windows: int) -> None:
        self.key = key
        self.row = row
        self.parent = parent
        self.children: list[CachedRow] = []
        self.digests: list[int] = []
        self.runs = [0] * windows
        """For each group with a window: how many rows up to this one it has cached without a gap."""
        self.resident = windows == 0


class TextIndex:
    """Follows the block pool: rows are attached by the requests that pass them, and removed as the pool loses them.

    Holds at most one row for each cached row of the pool and :data:`MAX_ROW_PIECES` digests for each.
    """

    def __init__(self, groups: KVGroups, find_block: Callable[[bytes], int | None]) -> None:
        """``find_block``: of the pool, by a row's key and its group's tag."""
        self._find_block = find_block
        self._size = groups.block_size
        self._tags = [bytes([group]) if group else b"" for group in range(groups.count)]
        self._full = [self._tags[group] for group in range(groups.count) if not groups.windowed[group]]
        self._windows = {group: place for place, group in enumerate(groups.with_window)}
        self._behind = [groups.rows_behind(group) for group in groups.with_window]
        self._rows: dict[bytes, CachedRow] = {}
        self._homes: dict[int, CachedRow] = {}
        """The row of each piece: that of the last request that had it."""
        self._changed: dict[int, int] = {}
        self._cleared = False
        self.num_resident = 0

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    @property
    def num_pieces(self) -> int:
        return len(self._homes)

    def attach_pieces(self, keys: Sequence[bytes], first: int, end: int, pieces: Sequence[TextPiece]) -> None:
        """Tie ``pieces``, in order, to the rows ``first`` up to ``end`` of a request, as far as these are cached.

        ``keys``: of its rows from 0 on. A piece whose end is inside a row belongs to the row before.
        """
        parent = self._rows.get(keys[first - 1]) if first else None
        if parent is None:
            first = 0
        size = self._size
        place = bisect_left(pieces, (first + 1) * size, key=_count_tokens)
        for row in range(first, end):
            parent = self._reach_row(keys[row], row, parent)
            if parent is None and self._full:
                return
            while place < len(pieces) and pieces[place].num_tokens // size == row + 1:
                if parent is not None:
                    self._tie_piece(pieces[place].digest, parent)
                place += 1

    def remove_key(self, key: bytes) -> None:
        """A block lost its content; ``key`` as in the block pool."""
        row = self._rows.get(key[:KEY_BYTES])
        if row is None:
            return
        window = self._windows.get(key[KEY_BYTES] if len(key) > KEY_BYTES else 0)
        if window is None:
            self._remove_rows(row)
            return
        self._set_run(row, window, 0)
        if not self._full and not any(row.runs):
            for child in row.children:
                child.parent = None
            row.children = []
            self._remove_rows(row)

    def clear(self) -> None:
        """No block is cached any more."""
        self._rows.clear()
        self._homes.clear()
        self._changed.clear()
        self._cleared, self.num_resident = True, 0

    def drain(self) -> tuple[bool, dict[int, int]]:
        """What changed since the last time: whether everything was removed first, and tokens by digest; 0 for none."""
        cleared, changed = self._cleared, self._changed
        self._cleared, self._changed = False, {}
        return cleared, changed

    @property
    def has_changes(self) -> bool:
        return self._cleared or bool(self._changed)

    def _reach_row(self, key: bytes, row: int, parent: CachedRow | None) -> CachedRow | None:
        """The row with ``key``, new or not, behind ``parent``; None where it is not cached."""
        node = self._rows.get(key)
        if node is not None and node.parent is parent and not self._windows:
            return node
        present = [self._find_block(key + self._tags[group]) is not None for group in self._windows]
        if node is None:
            if not (all(self._find_block(key + tag) is not None for tag in self._full) if self._full else any(present)):
                return None
            node = self._rows[key] = CachedRow(key, row, None, len(self._windows))
        if node.parent is None and parent is not None:
            node.parent = parent
            parent.children.append(node)
        for window, there in enumerate(present):
            before = 0 if node.parent is None else node.parent.runs[window]
            self._set_run(node, window, min(self._behind[window], before + 1) if there else 0)
        self._update_residency(node)
        return node

    def _set_run(self, row: CachedRow, window: int, run: int) -> None:
        """Set the run of the row and of those behind it whose runs begin at or before it."""
        left = [(row, run)]
        while left:
            node, run = left.pop()
            if node.runs[window] == run:
                continue
            node.runs[window] = run
            self._update_residency(node)
            left += [(c, min(self._behind[window], run + 1)) for c in node.children if c.runs[window]]

    def _update_residency(self, row: CachedRow) -> None:
        count = row.row + 1
        resident = all(run >= min(count, behind) for run, behind in zip(row.runs, self._behind, strict=True))
        if resident == row.resident:
            return
        row.resident = resident
        self.num_resident += len(row.digests) if resident else -len(row.digests)
        for digest in row.digests:
            self._changed[digest] = count * self._size if resident else 0

    def _tie_piece(self, digest: int, row: CachedRow) -> None:
        home = self._homes.get(digest)
        if home is row:
            return
        if home is not None:
            self._untie_piece(digest, home)
        if len(row.digests) == MAX_ROW_PIECES:
            self._untie_piece(row.digests[0], row)
        row.digests.append(digest)
        self._homes[digest] = row
        if row.resident:
            self.num_resident += 1
            self._changed[digest] = (row.row + 1) * self._size

    def _untie_piece(self, digest: int, row: CachedRow) -> None:
        row.digests.remove(digest)
        del self._homes[digest]
        if row.resident:
            self.num_resident -= 1
            self._changed[digest] = 0

    def _remove_rows(self, row: CachedRow) -> None:
        """The row and all behind it."""
        if row.parent is not None:
            row.parent.children.remove(row)
        left = [row]
        while left:
            node = left.pop()
            left += node.children
            del self._rows[node.key]
            for digest in node.digests[:]:
                self._untie_piece(digest, node)


def _count_tokens(piece: TextPiece) -> int:
    return piece.num_tokens
