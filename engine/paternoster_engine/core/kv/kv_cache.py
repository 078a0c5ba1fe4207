"""Block tables of requests: shared prefixes, forks, growth block by block, and release."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from paternoster_engine.core.batch import BlockCopy
from paternoster_engine.core.kv.block_keys import chain_key
from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request
from paternoster_engine.core.text_piece import TextPiece


class KVCache:
    """Block tables of all requests over one :class:`BlockPool`."""

    def __init__(self, pool: BlockPool, groups: KVGroups, *, prefix_cache: bool) -> None:
        self.pool = pool
        self.groups = groups
        self.block_size = groups.block_size
        self.prefix_cache = prefix_cache
        self._tags = [bytes([group]) if group else b"" for group in range(groups.count)]
        """What the key of a row is followed by for each group's block."""
        self._claims: dict[bytes, Request] = {}
        """Key of a full row that is not in the pool yet -> the running request that computes it next."""
        self._copies: dict[int, int] = {}
        """Block copied to -> block copied from, before the next batch is computed."""

    def num_tokens(self, prefix: Sequence[int]) -> int:
        """Tokens that the rows ``prefix`` of a block table stand for."""
        return len(prefix) // self.groups.count * self.block_size

    def find_prefix(self, request: Request) -> list[int]:
        """The rows of a block table that already hold the beginning of the request, as far as it may be reused.

        Something must be computed to be sampled from, so at most ``num_tokens - 1`` tokens are found.
        """
        table: list[int] = []
        if not self.prefix_cache:
            return table
        groups = self.groups
        for row in range(request.num_reusable // self.block_size):
            key = self.row_key(request, row)
            for tag, windowed in zip(self._tags, groups.windowed, strict=True):
                block_id = 0 if windowed else self.pool.find_block(key + tag)
                if block_id is None:
                    del table[row * groups.count :]
                    return self._limit_to_windows(request, table)
                table.append(block_id)
        return self._limit_to_windows(request, table)

    def _limit_to_windows(self, request: Request, table: list[int]) -> list[int]:
        """The most rows of ``table``, which has the other groups' blocks, of which windows have what they need next.

        From the last row down, as a row that is missing is needed for all longer beginnings that were not ruled out.
        """
        groups, count = self.groups, self.groups.count
        rows = row = len(table) // count
        while row > groups.first_window_row(rows):
            row -= 1
            for group, tag in enumerate(self._tags):
                if not groups.windowed[group] or row < groups.first_row(group, rows):
                    continue
                block_id = self.pool.find_block(self.row_key(request, row) + tag)
                if block_id is None:
                    rows = row
                    break
                table[row * count + group] = block_id
        del table[rows * count :]
        if request.block_table.num_swapped > rows * self.block_size:
            # It continues after its swapped tokens, where windows see less of the prefix.
            self._remove_old_rows(table, 0, request.block_table.num_swapped // self.block_size)
        return table

    def is_next_row_claimed(self, request: Request, prefix: list[int]) -> bool:
        """Whether the row after ``prefix`` is one that a running request, of no lower lane, is computing now.

        A waiting request holds no blocks, so each wait ends: with the row, or the other request's preemption or end.
        """
        row = len(prefix) // self.groups.count
        if not self._claims or (row + 1) * self.block_size > request.num_reusable:
            return False
        claimant = self._claims.get(self.row_key(request, row))
        return claimant is not None and claimant.spec.lane <= request.spec.lane

    def count_new_blocks(self, request: Request, prefix: list[int]) -> int:
        """Available blocks that the request would take for all its known tokens, ``prefix`` shared.

        Blocks that its sequences need after the fork are counted, though they are allocated later.
        """
        held = len(prefix) - prefix.count(0)
        unheld = self.pool.count_unheld(prefix, cold=request.gives_way)
        return self.groups.count_known_blocks(request) - held + unheld

    def count_available(self, request: Request) -> int:
        """Blocks that the request can get now."""
        return self.pool.num_available_cold if request.gives_way else self.pool.num_available

    def admit(self, request: Request, prefix: list[int], num_computed: int) -> None:
        """Give a request without blocks room for all its known tokens after ``num_computed``, ``prefix`` shared.

        A layer group with a window gets its blocks once; it releases rows at one end as it takes some at the other.
        Raises ``IndexError`` when fewer than :meth:`count_new_blocks` are available.
        """
        self.pool.share_blocks(prefix, cold=request.gives_way)
        self.pool.residency.record_access(prefix)
        groups, row = self.groups, num_computed // self.block_size
        rows, found = groups.count_rows(request.num_tokens), len(prefix) // groups.count
        columns = range(groups.count)
        starts = [groups.first_row(group, row) for group in columns]
        ends = [groups.end_row(group, row, rows) for group in columns]
        table = request.block_table
        table.block_ids = [*prefix, *[0] * ((rows - found) * groups.count)]
        row_groups = ((r, group) for r in range(found, rows) for group in columns if starts[group] <= r < ends[group])
        self._fill_entries(request, [r * groups.count + group for r, group in row_groups])
        table.num_writable = min(ends) * self.block_size
        table.num_cached_rows = found
        self._attach_text(request, 0, found)
        self._claim_next(request)

    def can_fork(self, request: Request, num_tokens: int) -> bool:
        """Whether a running request has, or will compute, all blocks that a fork after ``num_tokens`` needs."""
        if request.num_computed < num_tokens:
            return True
        groups, row, end = self.groups, num_tokens // self.block_size, self.groups.count_rows(num_tokens)
        return all(
            all(request.block_table.block_ids[group :: groups.count][groups.first_row(group, row) : end])
            for group in groups.with_window
        )

    def find_shareable_rows(self, request: Request, num_tokens: int) -> list[int]:
        """Return the full rows of the first ``num_tokens`` tokens of a request, without those that no window needs."""
        row = num_tokens // self.block_size
        table = request.block_table.block_ids[: row * self.groups.count]
        self._remove_old_rows(table, 0, row)
        return table

    def admit_fork(self, request: Request, donor: Request, num_tokens: int) -> None:
        """Admit ``request``, beginning with the first ``num_tokens`` tokens of ``donor``, which are computed.

        Full rows are shared; the last one is copied, as both requests write to it.
        """
        full = self.find_shareable_rows(donor, num_tokens)
        self.admit(request, full, num_tokens)
        if num_tokens % self.block_size:
            for entry in range(len(full), len(full) + self.groups.count):
                self._copies[request.block_table.block_ids[entry]] = donor.block_table.block_ids[entry]

    def fork(self, rows: Sequence[Request], parents: Sequence[Request]) -> None:
        """Continue ``rows[i]`` from the tokens of ``parents[i]``, all at once; each parent is one of the rows.

        All blocks are shared then. Blocks of rows that are no parent are released.
        """
        begun = [(replace(parent.block_table), parent.num_computed, parent.max_computed) for parent in parents]
        for parent, (table, *_) in zip(parents, begun, strict=True):
            self.pool.share_blocks(table.block_ids, cold=parent.gives_way)
        for row in rows:
            self.release(row)
        for row, (table, computed, max_computed) in zip(rows, begun, strict=True):
            row.block_table = replace(
                table,
                block_ids=list(table.block_ids),
                row_keys=table.row_keys[: computed // self.block_size],
                shares_tail=True,
                claimed_key=None,
            )
            row.num_computed, row.max_computed = computed, max_computed

    def extend_from_cache(self, request: Request) -> None:
        """Replace the request's blocks by the prefix cache's, where these reach further."""
        found = self.find_prefix(request)
        num_tokens = self.num_tokens(found)
        if num_tokens <= request.num_computed:
            return
        # Full blocks that it has stay: other sequences share them, and the cache may have found equal ones instead.
        own = request.num_computed // self.block_size * self.groups.count
        table = request.block_table
        found[:own] = [mine if block else 0 for mine, block in zip(table.block_ids, found[:own], strict=False)]
        self.pool.share_blocks(found, cold=request.gives_way)
        self.pool.residency.record_access(found)
        self.release(request)
        table.block_ids, table.num_cached_rows = found, num_tokens // self.block_size
        request.num_computed = table.num_writable = num_tokens
        self._attach_text(request, 0, table.num_cached_rows)

    def grow_table(self, request: Request, num_tokens: int) -> bool:
        """Allocate blocks for ``num_tokens`` tokens in all, and copies of shared ones that the request writes to next.

        Returns False, with nothing changed, when the pool has too few.
        """
        table, count, size = request.block_table, self.groups.count, self.block_size
        end = -(-num_tokens // size) * count
        new = max(0, end - len(table.block_ids))
        gaps = self._find_gaps(request, end) if self.groups.with_window else ()
        tail = self._find_shared_tail(request) if table.shares_tail else ()
        if new + len(gaps) + len(tail) > self.count_available(request):
            return False
        for entry in tail:
            self._copy_on_write(request, entry)
        table.shares_tail = False
        if gaps:
            self._fill_entries(request, gaps)
        if new:
            table.block_ids += self.pool.allocate(new, cold=request.gives_way)
        table.num_writable = max(table.num_writable, end // count * size)
        return True

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Return the copies to make before the batch that is built now."""
        if not self._copies:
            return ()
        copies = tuple((source, target) for target, source in self._copies.items())
        self._copies.clear()
        return copies

    def cache_full_blocks(self, request: Request, num_computed: int) -> None:
        """Add full blocks of the first ``num_computed`` tokens to the prefix cache; release those behind windows."""
        table = request.block_table
        first, full = table.num_cached_rows, num_computed // self.block_size
        if first >= full:
            return
        if self.prefix_cache:
            for group, tag in enumerate(self._tags):
                self._cache_rows(request, first, full, group, tag)
            self._attach_text(request, first, full)
        table.num_cached_rows = full
        if self.groups.with_window:
            self.pool.release(self._remove_old_rows(table.block_ids, first, full))
        self._drop_claim(request)
        self._claim_next(request)

    def _cache_rows(self, request: Request, first: int, end: int, group: int, tag: bytes) -> None:
        """Add one group's blocks of these rows to the prefix cache."""
        block_ids, count, stored = request.block_table.block_ids, self.groups.count, first
        for row in range(first, end):
            block_id = block_ids[row * count + group]
            if block_id and self.pool.cache_block(block_id, self.row_key(request, row) + tag):
                continue
            self._record_stored(request, stored, row, group)
            stored = row + 1
        self._record_stored(request, stored, end, group)

    def _record_stored(self, request: Request, first: int, end: int, group: int) -> None:
        if self.pool.events is None or first == end:
            return
        keys, size = request.block_table.row_keys, self.block_size
        parent = keys[first - 1] if first else None
        tokens = request.slice_tokens(first * size, end * size)
        self.pool.events.record_stored(keys[first:end], parent, tokens, request.spec.cache_scope, group)

    def _attach_text(self, request: Request, first: int, end: int) -> None:
        """Tie the pieces of the request's text to these rows, which are in the prefix cache."""
        index, pieces = self.pool.text_index, request.spec.text_pieces
        if index is not None and pieces and first * self.block_size < pieces[-1].num_tokens:
            index.attach_pieces(
                request.block_table.row_keys, first, min(end, len(request.block_table.row_keys)), pieces
            )

    def attach_text(self, request: Request, pieces: Sequence[TextPiece]) -> None:
        """Tie ``pieces`` of a request, which may have ended, to those of its rows that are cached."""
        keys = request.block_table.row_keys
        if self.pool.text_index is not None and pieces and keys:
            self.pool.text_index.attach_pieces(
                keys, 0, min(len(keys), pieces[-1].num_tokens // self.block_size), pieces
            )

    def uncache_blocks(self, request: Request) -> None:
        """Remove the request's blocks from the prefix cache, also those that it found there."""
        for key in request.block_table.row_keys:
            for tag in self._tags:
                self.pool.uncache_key(key + tag)

    def release(self, request: Request) -> None:
        """Release all blocks, tail first, so that the beginning, which others may share, is evicted last."""
        table = request.block_table
        self.pool.release(reversed(table.block_ids))
        if self._copies:
            for block_id in table.block_ids:
                self._copies.pop(block_id, None)
        table.block_ids = []
        table.num_cached_rows = table.num_writable = 0
        table.shares_tail = False
        if request.drafting is not None:
            # A draft model has its own keys and values under the numbers of these blocks.
            request.drafting.num_read = 0
        self._drop_claim(request)

    def find_uncached_blocks(self, request: Request) -> list[int]:
        """Return the blocks of a request that may not be computed yet."""
        table = request.block_table
        return [block_id for block_id in table.block_ids[table.num_cached_rows * self.groups.count :] if block_id]

    def build_stats(self) -> dict[str, int]:
        """The pool by the names in ``paternoster_contract.stats.EngineStats``, in blocks of all groups together."""
        pool, count = self.pool, self.groups.count
        blocks = max(1, pool.num_blocks // count)
        return {
            "kv_block_size": self.block_size,
            "kv_blocks": blocks,
            "kv_blocks_used": min(blocks, -(-(pool.num_used - pool.num_cold_used) // count)),
            "kv_blocks_cached": min(blocks, pool.num_cached // count),
        }

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Every block is accounted for by ``requests``, and each has what its next token needs; ``AssertionError``."""
        holders = [request for request in requests if request.block_table.block_ids]
        self.pool.check_integrity(request.block_table.block_ids for request in holders)
        groups = self.groups
        for request in holders:
            table = request.block_table
            row, end = request.num_computed // self.block_size, table.num_writable // self.block_size
            for group in range(groups.count):
                blocks = table.block_ids[group :: groups.count]
                assert all(blocks[groups.first_row(group, row) : end]), f"group {group} lacks blocks: {blocks}"
                # Windows release computed rows alone.
                assert not any(blocks[: groups.first_row(group, table.num_cached_rows)])

    def _fill_entries(self, request: Request, entries: Sequence[int]) -> None:
        block_ids = self.pool.allocate(len(entries), cold=request.gives_way)
        for entry, block_id in zip(entries, block_ids, strict=True):
            request.block_table.block_ids[entry] = block_id

    def _remove_old_rows(self, table: list[int], first: int, row: int) -> list[int]:
        """Take out of ``table`` what windows need in row ``first`` and no more in ``row``; returns these blocks."""
        groups, old = self.groups, []
        for group in groups.with_window:
            for entry in range(
                groups.first_row(group, first) * groups.count + group,
                min(len(table), groups.first_row(group, row) * groups.count),
                groups.count,
            ):
                old.append(table[entry])
                table[entry] = 0
        return old

    def _find_gaps(self, request: Request, end: int) -> list[int]:
        """Entries before ``end`` that are to be written to and have no block yet.

        Groups without a window take the blocks of a prompt all at once, those with one as it is computed.
        """
        block_ids = request.block_table.block_ids
        first = request.block_table.num_writable // self.block_size * self.groups.count
        return [entry for entry in range(first, min(end, len(block_ids))) if not block_ids[entry]]

    def _find_shared_tail(self, request: Request) -> list[int]:
        """Entries of the block table that the request writes to next, where others hold these blocks, too."""
        row, used = divmod(request.num_computed, self.block_size)
        if used == 0:
            return []
        entries = range(row * self.groups.count, (row + 1) * self.groups.count)
        return [entry for entry in entries if self.pool.is_shared(request.block_table.block_ids[entry])]

    def _copy_on_write(self, request: Request, entry: int) -> None:
        """Replace a shared block by a copy that the request alone holds."""
        shared = request.block_table.block_ids[entry]
        (own,) = self.pool.allocate(1, cold=request.gives_way)
        self._copies[own] = shared
        request.block_table.block_ids[entry] = own
        self.pool.release((shared,))

    def _claim_next(self, request: Request) -> None:
        """Claim the row that the request computes next, if its tokens are known.

        Not where another request has claimed it, unless that one is of a lower lane.
        """
        row = request.block_table.num_cached_rows
        if not self.prefix_cache or (row + 1) * self.block_size > request.num_tokens:
            return
        key = self.row_key(request, row)
        claimant = self._claims.get(key)
        if claimant is None or claimant.spec.lane > request.spec.lane:
            if claimant is not None:
                claimant.block_table.claimed_key = None
            self._claims[key] = request
            request.block_table.claimed_key = key

    def _drop_claim(self, request: Request) -> None:
        if request.block_table.claimed_key is not None:
            del self._claims[request.block_table.claimed_key]
            request.block_table.claimed_key = None

    def row_key(self, request: Request, row: int) -> bytes:
        """Prefix-cache key of a row whose tokens are all known."""
        keys = request.block_table.row_keys
        while len(keys) <= row:
            start = len(keys) * self.block_size
            parent = keys[-1] if keys else request.spec.cache_scope
            keys.append(chain_key(parent, request.slice_tokens(start, start + self.block_size)))
        return keys[row]
