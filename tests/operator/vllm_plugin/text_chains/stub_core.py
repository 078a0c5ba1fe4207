"""An engine core whose scheduler and block pool have what the plugin reads and wraps of vLLM's."""

from types import SimpleNamespace
from typing import Any

from paternoster_vllm.text_chains import PIECES
from paternoster_vllm.text_chains.block_watch import pack_pieces

BLOCK_SIZE = 4


class FullAttentionSpec:
    pass


class StubMap:
    """A stub of ``BlockHashToBlockMap``: several blocks may have one hash."""

    def __init__(self) -> None:
        self.blocks: dict[bytes, set[int]] = {}

    def get_one_block(self, key: bytes) -> int | None:
        return next(iter(self.blocks.get(key, ())), None)

    def pop(self, key: bytes, block_id: int) -> int | None:
        found = self.blocks.get(key, set())
        if block_id not in found:
            return None
        found.remove(block_id)
        if not found:
            del self.blocks[key]
        return block_id


class StubPool:
    """A stub of ``BlockPool``."""

    def __init__(self) -> None:
        self.enable_caching = True
        self.hash_block_size = BLOCK_SIZE
        self.cached_block_hash_to_block = StubMap()
        self.made = 0

    def get_cached_block(self, block_hash: bytes, groups: list[int]) -> list[int] | None:
        found = [self.cached_block_hash_to_block.get_one_block(block_hash + group.to_bytes(4)) for group in groups]
        return None if None in found else [each for each in found if each is not None]

    def cache(self, block_hash: bytes) -> None:
        self.made += 1
        self.cached_block_hash_to_block.blocks.setdefault(block_hash + bytes(4), set()).add(self.made)

    def evict(self, block_hash: bytes) -> None:
        for block_id in list(self.cached_block_hash_to_block.blocks.get(block_hash + bytes(4), ())):
            self.cached_block_hash_to_block.pop(block_hash + bytes(4), block_id)

    def reset_prefix_cache(self) -> bool:
        self.cached_block_hash_to_block = StubMap()
        return True


class StubScheduler:
    """Computes ``budget`` tokens of each prompt in a step, and caches the blocks that this fills."""

    def __init__(self, *specs: Any, budget: int = 1000) -> None:
        self.kv_cache_config = SimpleNamespace(
            kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs or (FullAttentionSpec(),)]
        )
        self.pool = StubPool()
        self.kv_cache_manager = SimpleNamespace(block_pool=self.pool)
        self.block_size = BLOCK_SIZE
        self.requests: dict[str, Any] = {}
        self.budget = budget
        self.new: list[str] = []
        self.finished: set[str] = set()

    def add_request(self, request_id: str, tokens: list[int], pieces: list[tuple[int, int]]) -> None:
        hashes = [hash_blocks(tokens[:end]) for end in range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE)]
        extra = {PIECES: pack_pieces(pieces)} if pieces else None
        self.requests[request_id] = SimpleNamespace(
            sampling_params=SimpleNamespace(extra_args=extra), block_hashes=hashes, num_computed_tokens=0,
            num_prompt_tokens=len(tokens),
        )  # fmt: skip
        self.new.append(request_id)

    def finish_request(self, request_id: str) -> None:
        del self.requests[request_id]
        self.finished.add(request_id)

    def schedule(self) -> Any:
        scheduled = {}
        for request_id, request in self.requests.items():
            first = request.num_computed_tokens
            request.num_computed_tokens = min(request.num_prompt_tokens, first + self.budget)
            scheduled[request_id] = request.num_computed_tokens - first
            for block_hash in request.block_hashes[: request.num_computed_tokens // BLOCK_SIZE]:
                if self.pool.get_cached_block(block_hash, [0]) is None:
                    self.pool.cache(block_hash)
        new, self.new = self.new, []
        finished, self.finished = self.finished, set()
        return SimpleNamespace(
            scheduled_new_reqs=[SimpleNamespace(req_id=request_id) for request_id in new if request_id in scheduled],
            num_scheduled_tokens=scheduled, finished_req_ids=finished,
        )  # fmt: skip


def hash_blocks(tokens: list[int]) -> bytes:
    return repr(tokens).encode()


class StubCore:
    """A stub of ``EngineCore``."""

    def __init__(self, scheduler: StubScheduler | None = None) -> None:
        self.scheduler = scheduler or StubScheduler()
