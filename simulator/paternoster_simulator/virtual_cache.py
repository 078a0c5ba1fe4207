"""What a simulated engine publishes of its prefix cache: the prefix blocks of a trace as pieces of text."""

from collections.abc import Sequence

from paternoster_engine.core.kv.cache_events import CacheEvents
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_gateway.prefixes.prefix_index import PrefixIndex
from paternoster_gateway.routing.prefix_routing import TOKENS_PER_BYTE, PromptChain
from paternoster_traces.trace import PREFIX_BLOCK_TOKENS, TraceRow

BYTES_PER_TOKEN = round(1 / TOKENS_PER_BYTE)
PIECE_BYTES = PREFIX_BLOCK_TOKENS * BYTES_PER_TOKEN
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number: different ids have different digests, in all buckets of the index."""


def text_of(row: TraceRow) -> PromptChain | None:
    """The full prefix blocks of a prompt as pieces; None where it has none."""
    ids = row.prefix_blocks[: row.prompt_tokens // PREFIX_BLOCK_TOKENS]
    if not ids:
        return None
    ends = range(PIECE_BYTES, PIECE_BYTES * len(ids) + 1, PIECE_BYTES)
    return PromptChain([block * _SPREAD % 2**64 for block in ids], ends, row.prompt_tokens * BYTES_PER_TOKEN)


class VirtualCache(CacheEvents):
    """Follows one engine's block pool and keeps its replica in ``index`` up to date, at once."""

    def __init__(self, name: str, scheduler: Scheduler, index: PrefixIndex) -> None:
        super().__init__()
        self._name = name
        self._kv = scheduler.kv
        self._index = index
        self._digests: dict[bytes, int] = {}
        """Digest of a piece by the key of its last KV block."""
        scheduler.pool.events = self
        index.store(name, ())

    def record_prompt(self, request: Request, prompt: PromptChain) -> None:
        """Publish the pieces of a computed prompt."""
        rows, pieces = PREFIX_BLOCK_TOKENS // self._kv.block_size, []
        for number, digest in enumerate(prompt.digests, 1):
            key = self._kv.row_key(request, rows * number - 1)
            if self._kv.pool.find_block(key) is not None:
                self._digests[key] = digest
                pieces.append((digest, PREFIX_BLOCK_TOKENS * number))
        self._index.store(self._name, pieces)

    def record_stored(
        self, keys: Sequence[bytes], parent: bytes | None, tokens: Sequence[int], scope: bytes, group: int
    ) -> None:
        """Prompts are recorded whole, by :meth:`record_prompt`."""

    def record_removed(self, key: bytes) -> None:
        digest = self._digests.pop(key, None)
        if digest is not None:
            self._index.remove(self._name, (digest,))
