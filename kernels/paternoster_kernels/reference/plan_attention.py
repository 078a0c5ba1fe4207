"""Index tensors of one step, made once and used by every layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from paternoster_kernels import device_batch
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.ragged_batch import RaggedBatch
from paternoster_kernels.scaled_cache import is_scaled


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Neighbouring sequences with one new token each and alike in length: one attention call."""

    rows: slice
    """Their tokens in the step."""
    pages: torch.Tensor
    """``[sequences * kv_heads * blocks]`` int64 rows of the cache seen as ``[blocks * kv_heads, page]``."""
    mask: torch.Tensor
    """``[sequences, 1, 1, blocks * block_size]``: 0 where a sequence has a token, -inf in its padding."""
    gathered: torch.Tensor
    """``[sequences * kv_heads * blocks, page]`` working memory, written anew by each layer."""
    positions: np.ndarray
    """``[sequences, 1]``: of each new token in its own sequence."""
    windows: dict[int, torch.Tensor] = field(default_factory=dict)
    """Window -> the mask with it, made when the first layer asks."""

    def build_mask(self, window: int | None) -> torch.Tensor:
        """The mask of a layer."""
        if window is None:
            return self.mask
        if window not in self.windows:
            hidden = np.arange(self.mask.shape[-1]) <= self.positions - window
            self.windows[window] = _hide_keys(self.mask, hidden[:, None, None, :])
        return self.windows[window]


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several new tokens of one sequence: one attention call."""

    rows: slice
    pages: torch.Tensor
    seq_len: int
    mask: torch.Tensor | None
    """``[new tokens, seq_len]`` with 0 where attention is allowed, -inf elsewhere; None for plain causal."""
    gathered: torch.Tensor
    windows: dict[int, torch.Tensor] = field(default_factory=dict)
    """Windows as :attr:`DecodeGroup.windows` has them."""

    def build_mask(self, window: int | None) -> torch.Tensor | None:
        """The mask of a layer; None for plain causal."""
        if window is None or window >= self.seq_len:
            return self.mask
        if window not in self.windows:
            positions = np.arange(self.seq_len - (self.rows.stop - self.rows.start), self.seq_len)[:, None]
            keys = np.arange(self.seq_len)
            allowed = (keys <= positions) & (keys > positions - window)
            self.windows[window] = _additive_mask(allowed, self.gathered)
        return self.windows[window]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Where each new token's key and value go, and which pages each sequence reads."""

    slots: torch.Tensor
    """``[tokens]`` int64: ``block * block_size + offset`` of each new token."""
    decodes: tuple[DecodeGroup, ...]
    prefills: tuple[PrefillChunk, ...]


def plan_attention(batch: RaggedBatch, cache: torch.Tensor) -> AttentionPlan | DeviceBatch:
    """Plan one step on ``cache``, a layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``.

    Decoding sequences that follow each other share a call while the longest has less than twice the blocks of
    the shortest, so that less than half of what is read is padding. A cache of 8 bits is read sequence by sequence.
    """
    if is_scaled(cache):
        return device_batch.plan_attention(batch, cache)
    kv_heads, block_size = cache.shape[1], cache.shape[2]
    blocks = [-(-seq_len // block_size) for seq_len in batch.seq_lens]
    tables = np.zeros((len(blocks), max(blocks)), dtype=np.int64)
    for row, (table, used) in enumerate(zip(batch.block_tables, blocks, strict=True)):
        tables[row, :used] = table[:used]
    heads = np.arange(kv_heads, dtype=np.int64)
    # Page of (sequence, head, block), in the order in which attention reads them.
    pages = tables[:, None, :] * kv_heads + heads[None, :, None]
    starts = np.concatenate(([0], np.cumsum(batch.query_lens)))

    decodes: list[DecodeGroup] = []
    prefills: list[PrefillChunk] = []
    for first, last in _list_groups(batch.query_lens, blocks):
        width = max(blocks[first:last])
        rows = slice(int(starts[first]), int(starts[last]))
        index = torch.from_numpy(pages[first:last, :, :width].reshape(-1)).to(cache.device)
        gathered = cache.new_empty(len(index), block_size * cache.shape[3])
        if batch.query_lens[first] == 1:
            lengths = np.asarray(batch.seq_lens[first:last])
            mask = _additive_mask(np.arange(width * block_size) < lengths[:, None], cache)
            decodes.append(DecodeGroup(rows, index, mask[:, None, None, :], gathered, lengths[:, None] - 1))
        else:
            count, seq_len = batch.query_lens[first], batch.seq_lens[first]
            mask = None
            if count < seq_len:
                limits = np.arange(seq_len - count, seq_len)
                mask = _additive_mask(np.arange(seq_len) <= limits[:, None], cache)
            prefills.append(PrefillChunk(rows, index, seq_len, mask, gathered))
    slots = torch.from_numpy(_slots_of(batch, tables, block_size)).to(cache.device)
    return AttentionPlan(slots, tuple(decodes), tuple(prefills))


def _list_groups(query_lens: Sequence[int], blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of sequences that share a call."""
    first = 0
    while first < len(blocks):
        last = first + 1
        low = high = blocks[first]
        while query_lens[first] == 1 and last < len(blocks) and query_lens[last] == 1:
            low, high = min(low, blocks[last]), max(high, blocks[last])
            if high >= 2 * low:
                break
            last += 1
        yield first, last
        first = last


def _hide_keys(mask: torch.Tensor, hidden: np.ndarray) -> torch.Tensor:
    return mask.masked_fill(torch.from_numpy(hidden).to(mask.device), float("-inf"))


def _additive_mask(allowed: np.ndarray, cache: torch.Tensor) -> torch.Tensor:
    mask = cache.new_zeros(allowed.shape)
    return mask.masked_fill_(torch.from_numpy(~allowed).to(cache.device), float("-inf"))


def _slots_of(batch: RaggedBatch, tables: np.ndarray, block_size: int) -> np.ndarray:
    query_lens, seq_lens = np.asarray(batch.query_lens), np.asarray(batch.seq_lens)
    sequence = np.repeat(np.arange(len(query_lens)), query_lens)
    offsets = np.arange(query_lens.sum()) - np.repeat(np.cumsum(query_lens) - query_lens, query_lens)
    positions = np.repeat(seq_lens - query_lens, query_lens) + offsets
    slots: np.ndarray = tables[sequence, positions // block_size] * block_size + positions % block_size
    return slots
