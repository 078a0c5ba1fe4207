"""The memory behind the KV cache, on the device and, for what is swapped out, on the host."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_kernels import pick_kernel
from paternoster_kernels.cpu import huge_pages
from paternoster_kernels.scaled_cache import token_width

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
    num_groups: int = 1
    """Groups of layers, which have blocks of their own."""

    @property
    def num_tokens(self) -> int:
        """Tokens of sequences within all windows; those that are longer need less a token."""
        return self.num_blocks * self.block_size // self.num_groups

    @classmethod
    def fit_memory(
        cls, config: ModelConfig, block_size: int, dtype: torch.dtype, memory: int, beside: int = 0
    ) -> "KVPoolShape":
        """Blocks of ``block_size`` tokens in ``memory`` bytes; raises :class:`KVPoolTooSmall`.

        ``beside``: bytes that a draft model takes for each of them.
        """
        block_bytes = kv_block_bytes(config, block_size, dtype)
        num_blocks = memory // (block_bytes + beside)
        if num_blocks < MIN_BLOCKS:
            raise KVPoolTooSmall(
                f"kv_cache_memory is {memory} bytes: must be at least {MIN_BLOCKS * (block_bytes + beside)} "
                f"({MIN_BLOCKS} blocks of {block_size} tokens, {block_bytes + beside} bytes each)"
            )
        return cls(num_blocks, block_size, block_bytes, len(config.layer_groups))


def group_size(config: ModelConfig) -> int:
    """Layers whose keys and values a block of the pool holds."""
    return max(len(group.layers) for group in config.layer_groups)


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of ``block_size`` tokens, with their scales, in the layers of a group."""
    return group_size(config) * config.num_kv_heads * block_size * token_width(config.head_dim, dtype) * dtype.itemsize


def allocate_kv_cache(
    shape: KVPoolShape, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, wait: bool = True
) -> tuple[torch.Tensor, ...]:
    """One tensor for each layer of a group, ``[num_blocks + 1, kv_heads, block_size, 2 * head_dim]``.

    With ``dtype`` of 8 bits as in :mod:`paternoster_kernels.scaled_cache`. Block 0 is the null block. Layers at the
    same place in different groups have a tensor in common, and blocks apart.

    Zeroed, so that padding read by attention is finite. Without ``wait`` a CPU's memory may be given out meanwhile.
    """
    width = token_width(config.head_dim, dtype)
    sizes = (group_size(config), shape.num_blocks + 1, config.num_kv_heads, shape.block_size, width)
    if device.type == "cpu":
        return tuple(huge_pages.zeros(sizes, dtype, wait=wait).unbind(0))
    return tuple(torch.zeros(sizes, dtype=dtype, device=device).unbind(0))


def copy_blocks(kv_cache: Sequence[torch.Tensor], copies: Sequence[tuple[int, int]]) -> None:
    """Copy (from, to) pairs of blocks with all their layers; no block may be in two roles, or copied to twice."""
    device = kv_cache[0].device
    pairs = torch.tensor(copies, dtype=torch.int64, device=device)
    copy = pick_kernel("copy_blocks", device)
    for layer in kv_cache:
        copy(layer, layer, pairs)


class HostMemory(Protocol):
    """Where blocks are copied to and from; each call returns when its copies are made."""

    def save(self, copies: Sequence[tuple[int, int]]) -> None: ...

    def load(self, copies: Sequence[tuple[int, int]]) -> None: ...


class HostKVCache:
    """Room in host memory for blocks of the pool, each with all its layers: ``[blocks, layers, heads, size, bytes]``.

    Page-locked where the pool is on a CUDA device, so that copies run at the speed of the bus.
    """

    def __init__(self, num_blocks: int, kv_cache: Sequence[torch.Tensor]) -> None:
        """``kv_cache``: the pool, from :func:`allocate_kv_cache`."""
        # Bytes, as not every number format can be gathered everywhere.
        self._layers = [layer.view(torch.int8) for layer in kv_cache]
        first = self._layers[0]
        self._blocks = torch.empty(
            (num_blocks, len(kv_cache), *first.shape[1:]), dtype=torch.int8, pin_memory=first.is_cuda
        )

    def save(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy (pool block, host block) pairs out; returns when they are made."""
        index = self._index(source for source, _ in copies)
        gathered = torch.stack([layer.index_select(0, index) for layer in self._layers], dim=1)
        for row, (_, target) in zip(gathered, copies, strict=True):
            self._blocks[target].copy_(row, non_blocking=True)
        self._wait()

    def load(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy (host block, pool block) pairs in; returns when they are made."""
        first = self._layers[0]
        gathered = torch.empty((len(copies), *self._blocks.shape[1:]), dtype=first.dtype, device=first.device)
        for row, (source, _) in zip(gathered, copies, strict=True):
            row.copy_(self._blocks[source], non_blocking=True)
        index = self._index(target for _, target in copies)
        for number, layer in enumerate(self._layers):
            layer.index_copy_(0, index, gathered[:, number])
        self._wait()

    def _index(self, blocks: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(blocks), dtype=torch.int64, device=self._layers[0].device)

    def _wait(self) -> None:
        if self._blocks.is_pinned():
            torch.cuda.synchronize(self._layers[0].device)
