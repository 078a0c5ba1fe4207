"""The memory behind the KV cache."""

from dataclasses import dataclass

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError

MIN_BLOCKS = 2
"""Below this not even one short sequence could grow past its first block."""


class KVPoolTooSmall(ModelError):
    """The memory given to the KV pool does not hold a usable number of blocks."""


@dataclass(frozen=True, slots=True)
class KVPoolShape:
    """How the pool's memory is divided."""

    num_blocks: int
    """Blocks the scheduler may hand out; the null block comes on top."""
    block_size: int
    block_bytes: int

    @property
    def num_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @classmethod
    def fit(cls, config: ModelConfig, block_size: int, dtype: torch.dtype, memory: int) -> "KVPoolShape":
        """Blocks of ``block_size`` tokens in ``memory`` bytes; raises :class:`KVPoolTooSmall`."""
        values_per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
        block_bytes = values_per_token * block_size * dtype.itemsize
        num_blocks = memory // block_bytes
        if num_blocks < MIN_BLOCKS:
            raise KVPoolTooSmall(
                f"kv_cache_memory is {memory} bytes: must be at least {MIN_BLOCKS * block_bytes} "
                f"({MIN_BLOCKS} blocks of {block_size} tokens, {block_bytes} bytes each)"
            )
        return cls(num_blocks, block_size, block_bytes)


def allocate_kv_cache(
    shape: KVPoolShape, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """One tensor a layer, ``[num_blocks + 1, kv_heads, block_size, 2 * head_dim]``; block 0 is the null block.

    Zeroed, so that padding read by attention is finite.
    """
    cache = torch.zeros(
        (config.num_layers, shape.num_blocks + 1, config.num_kv_heads, shape.block_size, 2 * config.head_dim),
        dtype=dtype,
        device=device,
    )
    return tuple(cache.unbind(0))
