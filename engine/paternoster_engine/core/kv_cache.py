"""Which blocks a request holds: shared prefixes, forks, growth block by block, and release."""

import json
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from paternoster_engine.core.batch import BlockCopy
from paternoster_engine.core.block_pool import BlockPool
from paternoster_engine.core.request import Request


def cache_scope(*names: str) -> bytes:
    """The scope of all requests with these ``names``, such as their tenant and salt; one for all without any."""
    if not any(names):
        return b""
    return blake2b(json.dumps(names).encode(), digest_size=16, person=b"cache scope").digest()


def chain_key(parent: bytes, tokens: list[int]) -> bytes:
    """Key of a full block: its tokens and all before them (hash chain, as in vLLM's prefix caching).

    A 128-bit digest and not Python's ``hash``: equal keys share memory across users, so a collision must not be
    something that a prompt can be built for.
    """
    return blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


def known_blocks(request: Request, block_size: int) -> int:
    """Blocks that a request holds with all its known tokens and, where it branches, with all its sequences."""
    if request.group is None:
        return -(-request.num_tokens // block_size)
    # One that has not branched yet continues in as many ways as it may; the last token sampled is never computed.
    known = min(max(request.group.num_tokens, request.num_prompt + 1), request.max_total_tokens - 1)
    return _group_blocks(request, request.num_tokens, known, block_size)


def most_blocks(request: Request, num_tokens: int, block_size: int) -> int:
    """Blocks that a request holds at most when it, or each of its sequences, is ``num_tokens`` long."""
    if request.width == 1:
        return -(-num_tokens // block_size)
    return _group_blocks(request, request.num_prompt, num_tokens, block_size)


def _group_blocks(request: Request, common: int, num_tokens: int, block_size: int) -> int:
    shared = min(common, num_tokens) // block_size
    return shared + request.width * (-(-num_tokens // block_size) - shared)


class KVCache:
    """Block tables of all requests over one :class:`BlockPool`."""

    def __init__(self, pool: BlockPool, block_size: int, *, prefix_cache: bool) -> None:
        self.pool = pool
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._claims: dict[bytes, Request] = {}
        """Key of a full block that is not in the pool yet -> the running request that computes it next."""
        self._copies: dict[int, int] = {}
        """Block copied to -> block copied from, before the batch in the making is computed."""

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find_prefix(self, request: Request) -> list[int]:
        """Blocks that already hold the beginning of the request, as far as it may be reused.

        Something must be computed to be sampled from, so at most ``num_tokens - 1`` tokens are found.
        """
        if not self.prefix_cache:
            return []
        found: list[int] = []
        for i in range(request.num_reusable // self.block_size):
            block_id = self.pool.lookup(self._key(request, i))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def awaits(self, request: Request, prefix: list[int]) -> bool:
        """Whether the block after ``prefix`` is one that a running request is computing now.

        Whoever waits for it holds nothing, so a wait ends: with the block, or with its computer's preemption or end.
        """
        index = len(prefix)
        if not self._claims or (index + 1) * self.block_size > request.num_reusable:
            return False
        return self._key(request, index) in self._claims

    def new_blocks(self, request: Request, prefix: list[int]) -> int:
        """Available blocks that the request would take for all its known tokens, ``prefix`` shared.

        Those that its sequences need to go on from there are counted, though they take them later.
        """
        return known_blocks(request, self.block_size) - len(prefix) + self.pool.num_unheld(prefix)

    def admit(self, request: Request, prefix: list[int]) -> None:
        """Give a request without blocks room for all its known tokens, ``prefix`` shared.

        Raises ``IndexError`` when fewer than :meth:`new_blocks` are available.
        """
        self.pool.share(prefix)
        request.block_ids = [*prefix, *self.pool.take_new(self.blocks_for(request.num_tokens) - len(prefix))]
        request.num_kept_blocks = len(prefix)
        self._claim_next(request)

    def admit_fork(self, request: Request, donor: Request, num_tokens: int) -> None:
        """As :meth:`admit`, beginning with the first ``num_tokens`` tokens of ``donor``, which are computed.

        Full blocks are shared; the last one is copied, as both go on to write to it.
        """
        full = num_tokens // self.block_size
        self.admit(request, donor.block_ids[:full])
        if num_tokens % self.block_size:
            self._copies[request.block_ids[full]] = donor.block_ids[full]

    def fork(self, rows: Sequence[Request], parents: Sequence[Request]) -> None:
        """Let ``rows[i]`` go on from where ``parents[i]`` is, all at once; each parent is one of the rows.

        All blocks are shared then. Those that none of the rows goes on from are given back.
        """
        begun = [
            (parent.block_ids, parent.block_keys, parent.num_kept_blocks, parent.num_computed, parent.max_computed)
            for parent in parents
        ]
        for block_ids, *_ in begun:
            self.pool.share(block_ids)
        for row in rows:
            self.release(row)
        for row, (block_ids, keys, kept, computed, max_computed) in zip(rows, begun, strict=True):
            row.block_ids, row.block_keys = list(block_ids), keys[: computed // self.block_size]
            row.num_kept_blocks, row.num_computed, row.max_computed = kept, computed, max_computed
            row.shares_tail = True

    def find_more(self, request: Request) -> None:
        """Go on from the prefix cache's blocks, where these reach further than what the request holds."""
        found = self.find_prefix(request)
        if len(found) * self.block_size <= request.num_computed:
            return
        # Full blocks that it has stay: other sequences share them, and the cache may have found equal ones instead.
        own = request.num_computed // self.block_size
        found[:own] = request.block_ids[:own]
        self.pool.share(found)
        self.release(request)
        request.block_ids, request.num_kept_blocks = found, len(found)
        request.num_computed = len(found) * self.block_size

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Room for ``num_tokens`` tokens in all, and none of it shared where the request writes next.

        False, and nothing changed, when the pool is dry.
        """
        new = max(0, self.blocks_for(num_tokens) - len(request.block_ids))
        tail = self._shared_tail(request)
        if new + (tail is not None) > self.pool.num_available:
            return False
        if tail is not None:
            self._own(request, tail)
        request.shares_tail = False
        if new > 0:
            request.block_ids += self.pool.take_new(new)
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
        """The first ``num_computed`` tokens are in the pool: make their full blocks findable."""
        first, full = request.num_kept_blocks, num_computed // self.block_size
        if not self.prefix_cache or first >= full:
            return
        for i in range(first, full):
            self.pool.remember(request.block_ids[i], self._key(request, i))
        request.num_kept_blocks = full
        self._disclaim(request)
        self._claim_next(request)

    def release(self, request: Request) -> None:
        """Take all blocks back, tail first, so that the beginning, which others may share, lives longest."""
        self.pool.release(reversed(request.block_ids))
        if self._copies:
            for block_id in request.block_ids:
                self._copies.pop(block_id, None)
        request.block_ids = []
        request.num_kept_blocks = 0
        request.shares_tail = False
        self._disclaim(request)

    def _shared_tail(self, request: Request) -> int | None:
        """Index in the block table of the block that the request writes to next, if others hold that, too."""
        index, used = divmod(request.num_computed, self.block_size)
        if not request.shares_tail or used == 0 or not self.pool.is_shared(request.block_ids[index]):
            return None
        return index

    def _own(self, request: Request, index: int) -> None:
        """Have a block of one's own copied from the shared one (copy on write)."""
        shared = request.block_ids[index]
        (own,) = self.pool.take_new(1)
        self._copies[own] = shared
        request.block_ids[index] = own
        self.pool.release((shared,))

    def _claim_next(self, request: Request) -> None:
        """Say which block the request computes next, if it knows all its tokens and nobody else computes it."""
        index = request.num_kept_blocks
        if not self.prefix_cache or (index + 1) * self.block_size > request.num_tokens:
            return
        key = self._key(request, index)
        if self._claims.setdefault(key, request) is request:
            request.claimed_key = key

    def _disclaim(self, request: Request) -> None:
        if request.claimed_key is not None:
            del self._claims[request.claimed_key]
            request.claimed_key = None

    def _key(self, request: Request, index: int) -> bytes:
        keys = request.block_keys
        while len(keys) <= index:
            start = len(keys) * self.block_size
            parent = keys[-1] if keys else request.cache_scope
            keys.append(chain_key(parent, request.tokens(start, start + self.block_size)))
        return keys[index]
