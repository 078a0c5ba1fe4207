"""Which blocks a request holds: shared prefixes, forks, growth block by block, and release."""

from collections.abc import Iterable, Sequence

from paternoster_engine.core.batch import BlockCopy
from paternoster_engine.core.kv.block_keys import chain_key
from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request


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
        """Block copied to -> block copied from, before the batch in the making is computed."""

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
            key = self.key(request, row)
            for tag, windowed in zip(self._tags, groups.windowed, strict=True):
                block_id = 0 if windowed else self.pool.lookup(key + tag)
                if block_id is None:
                    del table[row * groups.count :]
                    return self._find_windows(request, table)
                table.append(block_id)
        return self._find_windows(request, table)

    def _find_windows(self, request: Request, table: list[int]) -> list[int]:
        """The most rows of ``table``, which has the other groups' blocks, of which windows have what they need next.

        From the last row down, as a row that is missing is needed for all longer beginnings that were not ruled out.
        """
        groups, count = self.groups, self.groups.count
        rows = row = len(table) // count
        while row > groups.first_needed(rows):
            row -= 1
            for group, tag in enumerate(self._tags):
                if not groups.windowed[group] or row < groups.first_row(group, rows):
                    continue
                block_id = self.pool.lookup(self.key(request, row) + tag)
                if block_id is None:
                    rows = row
                    break
                table[row * count + group] = block_id
        del table[rows * count :]
        if request.num_swapped > rows * self.block_size:
            # It goes on from further on, where windows see less of this.
            self._forget_old(table, 0, request.num_swapped // self.block_size)
        return table

    def awaits(self, request: Request, prefix: list[int]) -> bool:
        """Whether the row after ``prefix`` is one that a running request is computing now.

        Whoever waits for it holds nothing, so a wait ends: with the row, or with its computer's preemption or end.
        """
        row = len(prefix) // self.groups.count
        if not self._claims or (row + 1) * self.block_size > request.num_reusable:
            return False
        return self.key(request, row) in self._claims

    def new_blocks(self, request: Request, prefix: list[int]) -> int:
        """Available blocks that the request would take for all its known tokens, ``prefix`` shared.

        Those that its sequences need to go on from there are counted, though they take them later.
        """
        held = len(prefix) - prefix.count(0)
        return self.groups.known_blocks(request) - held + self.pool.num_unheld(prefix)

    def admit(self, request: Request, prefix: list[int], num_computed: int) -> None:
        """Give a request without blocks room for all its known tokens after ``num_computed``, ``prefix`` shared.

        A group with a window gets what it needs at once; rows are let go at one end as they are taken at the other.
        Raises ``IndexError`` when fewer than :meth:`new_blocks` are available.
        """
        self.pool.share(prefix)
        self.pool.residency.accessed(prefix)
        groups, row = self.groups, num_computed // self.block_size
        rows, found = groups.rows(request.num_tokens), len(prefix) // groups.count
        columns = range(groups.count)
        starts = [groups.first_row(group, row) for group in columns]
        ends = [groups.end_row(group, row, rows) for group in columns]
        request.block_ids = [*prefix, *[0] * ((rows - found) * groups.count)]
        taken = ((r, group) for r in range(found, rows) for group in columns if starts[group] <= r < ends[group])
        self._fill(request, [r * groups.count + group for r, group in taken])
        request.room = min(ends) * self.block_size
        request.num_kept_rows = found
        self._claim_next(request)

    def holds(self, request: Request, num_tokens: int) -> bool:
        """Whether a running request still has, or is to compute, all that it takes to go on from ``num_tokens``."""
        if request.num_computed < num_tokens:
            return True
        groups, row, end = self.groups, num_tokens // self.block_size, self.groups.rows(num_tokens)
        return all(
            all(request.block_ids[group :: groups.count][groups.first_row(group, row) : end])
            for group in groups.with_window
        )

    def beginning(self, request: Request, num_tokens: int) -> list[int]:
        """Full rows of the first ``num_tokens`` tokens that a request :meth:`holds`, as far as these are needed."""
        row = num_tokens // self.block_size
        table = request.block_ids[: row * self.groups.count]
        self._forget_old(table, 0, row)
        return table

    def admit_fork(self, request: Request, donor: Request, num_tokens: int) -> None:
        """As :meth:`admit`, beginning with the first ``num_tokens`` tokens of ``donor``, which are computed.

        Full rows are shared; the last one is copied, as both go on to write to it.
        """
        full = self.beginning(donor, num_tokens)
        self.admit(request, full, num_tokens)
        if num_tokens % self.block_size:
            for entry in range(len(full), len(full) + self.groups.count):
                self._copies[request.block_ids[entry]] = donor.block_ids[entry]

    def fork(self, rows: Sequence[Request], parents: Sequence[Request]) -> None:
        """Let ``rows[i]`` go on from where ``parents[i]`` is, all at once; each parent is one of the rows.

        All blocks are shared then. Those that none of the rows goes on from are given back.
        """
        begun = [(p.block_ids, p.room, p.block_keys, p.num_kept_rows, p.num_computed, p.max_computed) for p in parents]
        for block_ids, *_ in begun:
            self.pool.share(block_ids)
        for row in rows:
            self.release(row)
        for row, (block_ids, room, keys, kept, computed, max_computed) in zip(rows, begun, strict=True):
            row.block_ids, row.room, row.block_keys = list(block_ids), room, keys[: computed // self.block_size]
            row.num_kept_rows, row.num_computed, row.max_computed = kept, computed, max_computed
            row.shares_tail = True

    def find_more(self, request: Request) -> None:
        """Go on from the prefix cache's blocks, where these reach further than what the request holds."""
        found = self.find_prefix(request)
        num_tokens = self.num_tokens(found)
        if num_tokens <= request.num_computed:
            return
        # Full blocks that it has stay: other sequences share them, and the cache may have found equal ones instead.
        own = request.num_computed // self.block_size * self.groups.count
        found[:own] = [mine if block else 0 for mine, block in zip(request.block_ids, found[:own], strict=False)]
        self.pool.share(found)
        self.pool.residency.accessed(found)
        self.release(request)
        request.block_ids, request.num_kept_rows = found, num_tokens // self.block_size
        request.num_computed = request.room = num_tokens

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Room for ``num_tokens`` tokens in all, and none of it shared where the request writes next.

        False, and nothing changed, when the pool is dry.
        """
        table, count, size = request.block_ids, self.groups.count, self.block_size
        end = -(-num_tokens // size) * count
        new = max(0, end - len(table))
        gaps = self._gaps(request, end) if self.groups.with_window else ()
        tail = self._shared_tail(request) if request.shares_tail else ()
        if new + len(gaps) + len(tail) > self.pool.num_available:
            return False
        for entry in tail:
            self._own(request, entry)
        request.shares_tail = False
        if gaps:
            self._fill(request, gaps)
        if new:
            table += self.pool.take_new(new)
        request.room = max(request.room, end // count * size)
        return True

    @property
    def copying(self) -> bool:
        """Whether the batch in the making begins with copies."""
        return bool(self._copies)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Copies to be made before the batch that is built now."""
        if not self._copies:
            return ()
        copies = tuple((source, target) for target, source in self._copies.items())
        self._copies.clear()
        return copies

    def keep(self, request: Request, num_computed: int) -> None:
        """The first ``num_computed`` tokens are in the pool: make their full rows findable, and let old ones go."""
        first, full = request.num_kept_rows, num_computed // self.block_size
        if first >= full:
            return
        if self.prefix_cache:
            for row in range(first, full):
                key = self.key(request, row)
                for entry, tag in enumerate(self._tags, start=row * self.groups.count):
                    if request.block_ids[entry]:
                        self.pool.remember(request.block_ids[entry], key + tag)
        request.num_kept_rows = full
        if self.groups.with_window:
            self.pool.release(self._forget_old(request.block_ids, first, full))
        self._disclaim(request)
        self._claim_next(request)

    def forget(self, request: Request) -> None:
        """Remove the request's blocks from the prefix cache, also those that it found there."""
        for key in request.block_keys:
            for tag in self._tags:
                self.pool.forget(key + tag)

    def release(self, request: Request) -> None:
        """Take all blocks back, tail first, so that the beginning, which others may share, lives longest."""
        self.pool.release(reversed(request.block_ids))
        if self._copies:
            for block_id in request.block_ids:
                self._copies.pop(block_id, None)
        request.block_ids = []
        request.num_kept_rows = request.room = 0
        request.shares_tail = False
        if request.drafting is not None:
            # A draft model has its own keys and values under the numbers of these blocks.
            request.drafting.num_read = 0
        self._disclaim(request)

    def unkept_blocks(self, request: Request) -> list[int]:
        """Blocks of a request that are not known to be computed."""
        first = request.num_kept_rows * self.groups.count
        return [block_id for block_id in request.block_ids[first:] if block_id]

    def stats(self) -> dict[str, int]:
        """The pool by the names in ``paternoster_contract.stats.EngineStats``, in blocks of all groups together."""
        pool, count = self.pool, self.groups.count
        blocks = max(1, pool.num_blocks // count)
        return {
            "kv_block_size": self.block_size,
            "kv_blocks": blocks,
            "kv_blocks_used": min(blocks, -(-pool.num_used // count)),
            "kv_blocks_cached": min(blocks, pool.num_cached // count),
        }

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Every block is accounted for by ``requests``, and each has what its next token needs; ``AssertionError``."""
        holders = [request for request in requests if request.block_ids]
        self.pool.check_integrity(request.block_ids for request in holders)
        groups = self.groups
        for request in holders:
            row, end = request.num_computed // self.block_size, request.room // self.block_size
            for group in range(groups.count):
                blocks = request.block_ids[group :: groups.count]
                assert all(blocks[groups.first_row(group, row) : end]), f"group {group} lacks blocks: {blocks}"
                # Only what is known to be computed is let go.
                assert not any(blocks[: groups.first_row(group, request.num_kept_rows)])

    def _fill(self, request: Request, entries: Sequence[int]) -> None:
        for entry, block_id in zip(entries, self.pool.take_new(len(entries)), strict=True):
            request.block_ids[entry] = block_id

    def _forget_old(self, table: list[int], first: int, row: int) -> list[int]:
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

    def _gaps(self, request: Request, end: int) -> list[int]:
        """Entries before ``end`` that are to be written to and have no block yet.

        Groups without a window take the blocks of a prompt all at once, those with one as it is computed.
        """
        first = request.room // self.block_size * self.groups.count
        return [entry for entry in range(first, min(end, len(request.block_ids))) if not request.block_ids[entry]]

    def _shared_tail(self, request: Request) -> list[int]:
        """Entries of the block table that the request writes to next, where others hold these blocks, too."""
        row, used = divmod(request.num_computed, self.block_size)
        if used == 0:
            return []
        entries = range(row * self.groups.count, (row + 1) * self.groups.count)
        return [entry for entry in entries if self.pool.is_shared(request.block_ids[entry])]

    def _own(self, request: Request, entry: int) -> None:
        """Have a block of one's own copied from the shared one (copy on write)."""
        shared = request.block_ids[entry]
        (own,) = self.pool.take_new(1)
        self._copies[own] = shared
        request.block_ids[entry] = own
        self.pool.release((shared,))

    def _claim_next(self, request: Request) -> None:
        """Say which row the request computes next, if it knows all its tokens and nobody else computes it."""
        row = request.num_kept_rows
        if not self.prefix_cache or (row + 1) * self.block_size > request.num_tokens:
            return
        key = self.key(request, row)
        if self._claims.setdefault(key, request) is request:
            request.claimed_key = key

    def _disclaim(self, request: Request) -> None:
        if request.claimed_key is not None:
            del self._claims[request.claimed_key]
            request.claimed_key = None

    def key(self, request: Request, row: int) -> bytes:
        """Prefix-cache key of a row whose tokens are all known."""
        keys = request.block_keys
        while len(keys) <= row:
            start = len(keys) * self.block_size
            parent = keys[-1] if keys else request.cache_scope
            keys.append(chain_key(parent, request.tokens(start, start + self.block_size)))
        return keys[row]
