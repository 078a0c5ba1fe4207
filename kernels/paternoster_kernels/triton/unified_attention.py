"""Paged attention for prefill, decode and batches of both in one kernel.

A program takes the query heads that share a key head, of some new tokens of one sequence, as the rows of one matrix
(vLLM's Q blocks, arXiv 2511.11581). Sequences with few rows are split along their keys (flash decoding, arXiv
2311.01282); into how many parts is worked out on the device from the sequence's own length. Tile shapes, splits and the
order of every sum depend on the sequence alone, so its numbers are the same in any batch.
"""

import torch
import triton
import triton.language as tl

from paternoster_kernels import scaled_cache
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.scaled_cache import is_scaled, token_width
from paternoster_kernels.triton.dot import dot
from paternoster_kernels.triton.find_sequence import find_sequence, tile_count
from paternoster_kernels.triton.merge_splits import MAX_SPLITS, blocks_per_split, merge_splits_kernel, split_bound

SHORT_ROWS = 16
"""Rows of a tile when a sequence's new tokens fit into so few; the smallest a tensor core multiplies."""
LONG_ROWS = 64
LOG2_E = 1.4426950408889634
_LOG2_E = tl.constexpr(LOG2_E)


@triton.jit
def _attend_tile(
    queries, cache, scales, sinks, out, part_out, part_lse, table,
    query_start, query_len, seq_len, first, part_row, kv_head, split, split_bound, part_rows,
    inner_scale, outer_scale, token_stride, head_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
    SCALED: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of ``ROWS`` rows from new token ``first`` on, over its sequence's keys or over one split of them."""
    TOKENS: tl.constexpr = ROWS // GROUP
    row = tl.arange(0, ROWS)
    token = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    row_used = (row < TOKENS * GROUP) & (token < query_len)
    dims = tl.arange(0, HEAD_PAD)
    dim_used = dims < HEAD_DIM
    columns = tl.arange(0, BLOCK_SIZE)
    position = seq_len - query_len + token

    stop = seq_len - query_len + tl.minimum(first + TOKENS, query_len)
    low = 0
    if WINDOW > 0:
        low = tl.maximum(seq_len - query_len + first - WINDOW + 1, 0) // BLOCK_SIZE
    high = tl.cdiv(stop, BLOCK_SIZE)
    splits = 1
    if SPLIT:
        blocks = blocks_per_split(high - low, BLOCK_SIZE)
        splits = tl.cdiv(high - low, blocks)
        low += split * blocks
        high = tl.minimum(low + blocks, high)

    if low < high:
        q_offsets = (query_start + token)[:, None] * token_stride + head[:, None] * head_stride + dims[None, :]
        q = tl.load(queries + q_offsets, mask=row_used[:, None] & dim_used[None, :], other=0.0)
        best = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, HEAD_PAD], tl.float32)
        if SINKS:
            # One more key, in the first split: a score, and a value of nothing.
            sink = tl.load(sinks + head, mask=row_used, other=0.0).to(tl.float32) * _LOG2_E
            best = tl.where(split == 0, sink, best)
            total = tl.where(split == 0, 1.0, total)
        for index in tl.range(low, high, num_stages=STAGES):
            block = tl.load(table + index).to(tl.int64)
            page = (block * KV_HEADS + kv_head) * (BLOCK_SIZE * WIDTH)
            key_position = index * BLOCK_SIZE + columns
            key_used = key_position < stop
            # A token's key and value lie side by side: 2 * HEAD_DIM numbers a token.
            k_offsets = columns[None, :] * (2 * HEAD_DIM) + dims[:, None]
            k = tl.load(cache + page + k_offsets, mask=key_used[None, :] & dim_used[:, None], other=0.0)
            scores = dot(q, k.to(q.dtype), tl.zeros([ROWS, BLOCK_SIZE], tl.float32)) * inner_scale
            if SCALED:
                # Two bytes each, behind the page's numbers of one.
                own = scales + page // 2 + columns
                scores *= tl.load(own, mask=key_used, other=0.0).to(tl.float32)[None, :]
            if SOFTCAP:
                scores = outer_scale * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))
            visible = key_position[None, :] <= position[:, None]
            if WINDOW > 0:
                visible = visible & (key_position[None, :] > position[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
            new_best = tl.maximum(best, tl.max(scores, 1))
            # A row that has seen no key yet has no best score: -inf less -inf would be NaN.
            base = tl.where(new_best == float("-inf"), 0.0, new_best)
            fade = tl.exp2(best - base)
            weights = tl.exp2(scores - base[:, None])
            total = total * fade + tl.sum(weights, 1)
            mixed = mixed * fade[:, None]
            v_offsets = columns[:, None] * (2 * HEAD_DIM) + HEAD_DIM + dims[None, :]
            v = tl.load(cache + page + v_offsets, mask=key_used[:, None] & dim_used[None, :], other=0.0)
            if SCALED:
                weights *= tl.load(own + BLOCK_SIZE, mask=key_used, other=0.0).to(tl.float32)[None, :]
            mixed = dot(weights.to(q.dtype), v.to(q.dtype), mixed)
            best = new_best

        # A row whose window ends before this split has nothing to tell: weight 0 in the merge.
        mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
        stored = row_used[:, None] & dim_used[None, :]
        if splits == 1:
            heads = KV_HEADS * GROUP
            o_offsets = ((query_start + token) * heads + head).to(tl.int64)[:, None] * HEAD_DIM + dims[None, :]
            tl.store(out + o_offsets, mixed.to(out.dtype.element_ty), mask=stored)
        else:
            part = ((part_row * KV_HEADS + kv_head).to(tl.int64) * split_bound + split) * part_rows + row
            tl.store(part_out + part[:, None] * HEAD_DIM + dims[None, :], mixed, mask=stored)
            tl.store(part_lse + part, best + tl.log2(total), mask=row_used)


# Numbers that differ from step to step would otherwise be compiled for anew while requests wait.
@triton.jit(do_not_specialize=["sequences", "split_bound", "part_rows", "table_stride"])
def unified_attention_kernel(
    queries, cache, scales, sinks, out, part_out, part_lse, query_starts, seq_lens, block_tables,
    sequences, split_bound, part_rows, inner_scale, outer_scale, token_stride, head_stride, table_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
    SCALED: tl.constexpr, SHORT: tl.constexpr, LONG: tl.constexpr, ONLY_SHORT: tl.constexpr, ONE_PASS: tl.constexpr,
):  # fmt: skip
    """Grid: tiles, key heads, splits; sequences instead of tiles when all are short."""
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    if ONLY_SHORT:
        row = tl.program_id(0)
        first = 0
    else:
        TILE: tl.constexpr = LONG // GROUP
        tile = tl.program_id(0)
        row = find_sequence(query_starts, tile, sequences, TILE)
        first = (tile - tl.load(query_starts + row) // TILE - row) * TILE
    query_start = tl.load(query_starts + row)
    query_len = tl.load(query_starts + row + 1) - query_start
    if first >= query_len:
        return
    seq_len = tl.load(seq_lens + row)
    table = block_tables + row.to(tl.int64) * table_stride
    if ONE_PASS:
        _attend_tile(
            queries, cache, scales, sinks, out, part_out, part_lse, table,
            query_start, query_len, seq_len, first, row, kv_head, split, split_bound, part_rows,
            inner_scale, outer_scale, token_stride, head_stride,
            KV_HEADS, GROUP, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, WINDOW, SOFTCAP, SINKS, SCALED, LONG, False, 2,
        )  # fmt: skip
    elif query_len * GROUP <= SHORT // GROUP * GROUP:
        _attend_tile(
            queries, cache, scales, sinks, out, part_out, part_lse, table,
            query_start, query_len, seq_len, first, row, kv_head, split, split_bound, part_rows,
            inner_scale, outer_scale, token_stride, head_stride,
            KV_HEADS, GROUP, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, WINDOW, SOFTCAP, SINKS, SCALED, SHORT, True, 3,
        )  # fmt: skip
    elif not ONLY_SHORT:
        if split == 0:
            _attend_tile(
                queries, cache, scales, sinks, out, part_out, part_lse, table,
                query_start, query_len, seq_len, first, row, kv_head, split, split_bound, part_rows,
                inner_scale, outer_scale, token_stride, head_stride,
                KV_HEADS, GROUP, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, WINDOW, SOFTCAP, SINKS, SCALED, LONG, False, 2,
            )  # fmt: skip


def unified_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    batch: DeviceBatch,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    one_pass: bool = False,
) -> torch.Tensor:
    """Attention as in :mod:`paternoster_kernels.reference.unified_attention`, for float32, bfloat16 and float16.

    ``queries`` may be a view with any strides but the last; ``cache`` is contiguous, its block size a power of two of
    at least 16. ``out [tokens, heads, head_dim]``, contiguous, is written when given. Rows of padding keep what
    ``out`` held. With ``one_pass`` no sequence is split, and decodes take tiles as long as prompts do: then a token's
    numbers are also the same whether its prompt came in chunks or whole.
    """
    tokens, heads, head_dim = queries.shape
    _, kv_heads, block_size, width = cache.shape
    if width != token_width(head_dim, cache.dtype) or heads % kv_heads:
        raise ValueError(
            f"cache is {tuple(cache.shape)} for queries {tuple(queries.shape)}: its last dimension must be "
            f"{token_width(head_dim, cache.dtype)} and its heads must divide the queries'"
        )
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size is {block_size}: must be a power of two of at least 16")
    out = queries.new_empty(tokens, heads, head_dim) if out is None else out
    group = heads // kv_heads
    short = max(SHORT_ROWS, triton.next_power_of_2(group))
    long = max(LONG_ROWS, short)
    only_short = batch.max_query_len <= short // group and not one_pass
    sequences = len(batch.seq_lens)
    splits = 1 if one_pass else split_bound(batch.max_seq_len, block_size)
    part_rows = min(short // group, batch.max_query_len) * group
    parts = (sequences, kv_heads, splits, part_rows) if splits > 1 else (0,)
    part_out = torch.empty(*parts, head_dim, dtype=torch.float32, device=queries.device)
    part_lse = torch.empty(parts, dtype=torch.float32, device=queries.device)
    grid = (sequences if only_short else tile_count(tokens, sequences, long // group), kv_heads, splits)
    unified_attention_kernel[grid](
        queries, cache, scaled_cache.view_scales(cache) if is_scaled(cache) else cache,
        cache if sinks is None else sinks, out, part_out, part_lse,
        batch.query_starts, batch.seq_lens, batch.block_tables, sequences, splits, part_rows,
        scale * LOG2_E if softcap is None else scale / softcap, 1.0 if softcap is None else softcap * LOG2_E,
        queries.stride(0), queries.stride(1), batch.block_tables.stride(0),
        KV_HEADS=kv_heads, GROUP=group, HEAD_DIM=head_dim, HEAD_PAD=triton.next_power_of_2(head_dim),
        BLOCK_SIZE=block_size, WIDTH=width, WINDOW=window or 0, SOFTCAP=softcap is not None,
        SINKS=sinks is not None, SCALED=is_scaled(cache),
        SHORT=short, LONG=long, ONLY_SHORT=only_short, ONE_PASS=one_pass,
        num_warps=4 if head_dim * queries.itemsize <= 256 else 8,
    )  # fmt: skip
    if splits > 1:
        merge_splits_kernel[(sequences, kv_heads * part_rows)](
            part_out, part_lse, out, batch.query_starts, batch.seq_lens, splits, part_rows,
            KV_HEADS=kv_heads, GROUP=group, HEAD_DIM=head_dim, HEAD_PAD=triton.next_power_of_2(head_dim),
            BLOCK_SIZE=block_size, WINDOW=window or 0, SHORT=short, SPLITS=MAX_SPLITS, num_warps=4,
        )  # fmt: skip
    return out


def paged_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    plan: DeviceBatch,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """:func:`unified_attention` as a model calls it: on CUDA the plan is a :class:`DeviceBatch`."""
    return unified_attention(queries, cache, plan, scale, window=window, softcap=softcap, sinks=sinks)
