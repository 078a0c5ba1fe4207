"""Attention over the paged cache in tiles of a few queries and chunks of keys, for any sequence alike."""

from dataclasses import dataclass

import numpy as np
import torch

from paternoster_kernels import scaled_cache
from paternoster_kernels.cpu import attention as cpu_attention
from paternoster_kernels.cpu.kv_cache import is_tiled
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.device_batch import plan_attention as device_plan
from paternoster_kernels.ragged_batch import RaggedBatch

TILE = 8
"""New tokens of one sequence that are computed together; fewer are padded."""
CHUNK = 256
"""Keys that one product takes, about: whole blocks."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The tiles of one step, those with the most chunks of keys first."""

    slots: torch.Tensor
    """``[tokens]`` int64: ``block * block_size + offset`` of each new token."""
    rows: torch.Tensor
    """``[tiles, TILE]`` int64: new token of each query; padding repeats the tile's last."""
    limits: torch.Tensor
    """``[tiles, TILE, 1]`` int64: position of each query, the last key that it sees."""
    pages: torch.Tensor
    """``[tiles, chunks * blocks of a chunk]`` int64 blocks; block 0 where a tile has no more."""
    tiles_with_chunk: tuple[int, ...]
    """How many tiles have a first chunk, a second one, and so on."""


def plan_attention(batch: RaggedBatch, cache: torch.Tensor) -> DeviceBatch | TilePlan:
    """Plan attention by tiles; where the C++ reads this cache its own plan, for it takes every row by itself anyway."""
    if load_library() is not None and is_tiled(cache):
        return device_plan(batch, cache)
    block_size = cache.shape[2]
    step = max(1, CHUNK // block_size)
    rows, limits, tables = [], [], []
    start = 0
    for query_len, seq_len, table in zip(batch.query_lens, batch.seq_lens, batch.block_tables, strict=True):
        for first in range(0, query_len, TILE):
            tokens = np.minimum(np.arange(first, first + TILE), query_len - 1)
            rows.append(start + tokens)
            limits.append(seq_len - query_len + tokens)
            blocks = -(-(int(limits[-1][-1]) + 1) // block_size)
            tables.append(np.asarray(table[:blocks], dtype=np.int64))
        start += query_len
    chunks = np.array([-(-len(table) // step) for table in tables])
    order = np.argsort(-chunks, kind="stable")
    pages = np.zeros((len(tables), int(chunks.max()) * step), dtype=np.int64)
    for row, tile in enumerate(order):
        pages[row, : len(tables[tile])] = tables[tile]
    return TilePlan(
        slots=device_plan(batch, cache).slots,
        rows=torch.from_numpy(np.stack(rows)[order]).to(cache.device),
        limits=torch.from_numpy(np.stack(limits)[order][:, :, None]).to(cache.device),
        pages=torch.from_numpy(pages).to(cache.device),
        tiles_with_chunk=tuple(int((chunks > chunk).sum()) for chunk in range(chunks.max())),
    )


def paged_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    plan: DeviceBatch | TilePlan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention in float32, whatever the numbers are stored as."""
    if isinstance(plan, DeviceBatch):
        return cpu_attention.paged_attention(queries, cache, plan, scale, window=window, softcap=softcap, sinks=sinks)
    _, heads, head_dim = queries.shape
    kv_heads, block_size = cache.shape[1], cache.shape[2]
    step = max(1, CHUNK // block_size)
    group = heads // kv_heads
    # Rows of a tile and key head: TILE tokens, then the query heads that share the key head.
    grouped = queries[plan.rows].unflatten(2, (kv_heads, group)).permute(0, 2, 1, 3, 4)
    scaled = grouped.reshape(-1, TILE * group, head_dim).float() * scale
    limits = plan.limits.expand(-1, -1, group).reshape(-1, 1, TILE * group, 1)
    chunks = [
        _read_chunk(cache, plan.pages[:tiles, number * step : (number + 1) * step])
        for number, tiles in enumerate(plan.tiles_with_chunk)
    ]
    scores = scaled.new_full((len(scaled), TILE * group, len(chunks) * step * block_size), float("-inf"))
    for number, (keys, _) in enumerate(chunks):
        first, stop = (chunk * step * block_size for chunk in (number, number + 1))
        part = torch.bmm(scaled[: len(keys)], keys.transpose(1, 2)).unflatten(0, (-1, kv_heads))
        if softcap is not None:
            part = softcap * torch.tanh(part / softcap)
        keys_at, limit = torch.arange(first, stop, device=cache.device), limits[: len(part)]
        hidden = keys_at > limit
        if window is not None:
            hidden |= keys_at <= limit - window
        scores[: len(keys), :, first:stop] = part.masked_fill_(hidden, float("-inf")).flatten(0, 1)
    # What follows a row's last key weighs nothing, so a row's sum is the same however long the longest row is.
    if sinks is None:
        weights = torch.softmax(scores, -1)
    else:
        # As rows are: the tokens of a tile, each with the query heads that share the key head.
        own = sinks.float().view(1, kv_heads, 1, group).expand(len(plan.rows), -1, TILE, -1).reshape(len(scaled), -1, 1)
        weights = torch.softmax(torch.cat((own, scores), -1), -1)[..., 1:]
    mixed = torch.zeros_like(scaled)
    for number, (_, values) in enumerate(chunks):
        part = weights[: len(values), :, number * step * block_size : (number + 1) * step * block_size]
        mixed[: len(values)] += torch.bmm(part.contiguous(), values)
    out = queries.new_empty(queries.shape)
    by_token = mixed.view(-1, kv_heads, TILE, group, head_dim).permute(0, 2, 1, 3, 4).flatten(2, 3)
    # Padding repeats a token, and its result.
    out[plan.rows] = by_token.to(queries.dtype)
    return out


def _read_chunk(cache: torch.Tensor, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[tiles * kv_heads, tokens, head_dim]`` float32 of ``pages [tiles, blocks]``."""
    gathered = scaled_cache.gather_tokens(cache, pages, torch.float32).transpose(1, 2)
    keys, values = gathered.reshape(len(pages) * cache.shape[1], -1, gathered.shape[-1]).chunk(2, -1)
    return keys.contiguous(), values.contiguous()
