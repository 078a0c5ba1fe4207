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

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find_prefix(self, request: Request) -> list[int]:
        """Blocks that already hold the beginning of the request; the last known token is never among them.

        Something must be computed to be sampled from, so at most ``num_tokens - 1`` tokens are found.
        """
        if not self.prefix_cache:
            return []
        found: list[int] = []
        for i in range((request.num_tokens - 1) // self.block_size):
            block_id = self.pool.lookup(self._key(request, i))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def admit(self, request: Request, prefix: list[int], *, reserve: int) -> bool:
        """Give a request without blocks room for all its known tokens, ``prefix`` shared; False if fewer than
        ``reserve`` blocks would be left.
        """
        new = self.blocks_for(request.num_tokens) - len(prefix)
        if new + self.pool.num_unheld(prefix) + reserve > self.pool.num_available:
            return False
        self.pool.share(prefix)
        request.block_ids = [*prefix, *self.pool.take_new(new)]
        return True

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
        if not self.prefix_cache:
            return
        for i in range(request.num_kept_blocks, num_computed // self.block_size):
            self.pool.remember(request.block_ids[i], self._key(request, i))
            request.num_kept_blocks = i + 1

    def release(self, request: Request) -> None:
        """Take all blocks back, tail first, so that the beginning, which others may share, lives longest."""
        self.pool.release(reversed(request.block_ids))
        request.block_ids = []
        request.num_kept_blocks = 0

    def _key(self, request: Request, index: int) -> bytes:
        keys = request.block_keys
        while len(keys) <= index:
            start = len(keys) * self.block_size
            parent = keys[-1] if keys else _ROOT
            keys.append(chain_key(parent, request.tokens(start, start + self.block_size)))
        return keys[index]
