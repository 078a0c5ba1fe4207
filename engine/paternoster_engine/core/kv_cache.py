"""Which blocks a request holds: shared prefixes, growth block by block, and release."""

from array import array
from hashlib import blake2b

from paternoster_engine.core.block_pool import BlockPool
from paternoster_engine.core.request import Request

_ROOT = b""


def chain_key(parent: bytes, tokens: list[int]) -> bytes:
    """Key of a full block: its tokens and all before them (hash chain, as in vLLM's prefix caching).

    A 128-bit digest and not Python's ``hash``: equal keys share memory across users, so a collision must not be
    something that a prompt can be built for.
    """
    return blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


class KVCache:
    """Block tables of all requests over one :class:`BlockPool`."""

    def __init__(self, pool: BlockPool, block_size: int, *, prefix_cache: bool) -> None:
        self.pool = pool
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._claims: dict[bytes, Request] = {}
        """Key of a full block that is not in the pool yet -> the running request that computes it next."""

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
        """Available blocks that the request would take for all its known tokens, ``prefix`` shared."""
        return self.blocks_for(request.num_tokens) - len(prefix) + self.pool.num_unheld(prefix)

    def admit(self, request: Request, prefix: list[int]) -> None:
        """Give a request without blocks room for all its known tokens, ``prefix`` shared.

        Raises ``IndexError`` when fewer than :meth:`new_blocks` are available.
        """
        self.pool.share(prefix)
        request.block_ids = [*prefix, *self.pool.take_new(self.blocks_for(request.num_tokens) - len(prefix))]
        request.num_kept_blocks = len(prefix)
        self._claim_next(request)

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Room for ``num_tokens`` tokens in all; False, and nothing changed, when the pool is dry."""
        new = self.blocks_for(num_tokens) - len(request.block_ids)
        if new > self.pool.num_available:
            return False
        if new > 0:
            request.block_ids += self.pool.take_new(new)
        return True

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
        request.block_ids = []
        request.num_kept_blocks = 0
        self._disclaim(request)

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
            parent = keys[-1] if keys else _ROOT
            keys.append(chain_key(parent, request.tokens(start, start + self.block_size)))
        return keys[index]
