"""The second half of split attention: parts weighted by their share of the softmax, and how many parts there are."""

import triton
import triton.language as tl

SPLIT_TOKENS = 256
"""Keys that are worth a program of their own: with 4 queries a key head, writing a part is then 2 % of reading it."""
MAX_SPLITS = 32

_SPLIT_TOKENS = tl.constexpr(SPLIT_TOKENS)
_MAX_SPLITS = tl.constexpr(MAX_SPLITS)


def split_bound(max_seq_len: int, block_size: int) -> int:
    """Splits that no sequence of up to ``max_seq_len`` tokens exceeds: the depth of the launch's grid."""
    # A window may begin inside a block and end inside another: one block more than its tokens need.
    return min(MAX_SPLITS, -(-(max_seq_len + block_size) // SPLIT_TOKENS))


@triton.jit
def blocks_per_split(blocks, BLOCK_SIZE: tl.constexpr):
    """KV blocks in each split of a sequence that reads ``blocks``; a function of these two alone."""
    splits = tl.minimum(tl.cdiv(blocks * BLOCK_SIZE, _SPLIT_TOKENS), _MAX_SPLITS)
    return tl.cdiv(blocks, splits)


@triton.jit(do_not_specialize=["split_bound", "part_rows"])
def merge_splits_kernel(
    part_out, part_lse, out, query_starts, seq_lens, split_bound, part_rows,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, SHORT: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """One program a row: grid ``(sequences, kv_heads * part_rows)``.

    ``part_out [sequences, kv_heads, split_bound, part_rows, head_dim]``; ``part_lse`` the same without the last
    dimension: base-2 logarithm of each part's softmax denominator.
    """
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1) // part_rows
    row = tl.program_id(1) % part_rows
    query_start = tl.load(query_starts + sequence)
    query_len = tl.load(query_starts + sequence + 1) - query_start
    if (row >= query_len * GROUP) | (query_len > SHORT // GROUP):
        return
    seq_len = tl.load(seq_lens + sequence)
    low = 0
    if WINDOW > 0:
        low = tl.maximum(seq_len - query_len - WINDOW + 1, 0) // BLOCK_SIZE
    blocks = tl.cdiv(seq_len, BLOCK_SIZE) - low
    splits = tl.cdiv(blocks, blocks_per_split(blocks, BLOCK_SIZE))
    if splits == 1:
        return
    split = tl.arange(0, SPLITS)
    dims = tl.arange(0, HEAD_PAD)
    part = ((sequence * KV_HEADS + kv_head).to(tl.int64) * split_bound + split) * part_rows + row
    lse = tl.load(part_lse + part, mask=split < splits, other=float("-inf"))
    share = tl.exp2(lse - tl.max(lse, 0))
    share = share / tl.sum(share, 0)
    used = (split < splits)[:, None] & (dims < HEAD_DIM)[None, :]
    parts = tl.load(part_out + part[:, None] * HEAD_DIM + dims[None, :], mask=used, other=0.0)
    merged = tl.sum(parts * share[:, None], 0)
    token = query_start + row // GROUP
    head = kv_head * GROUP + row % GROUP
    target = (token * (KV_HEADS * GROUP) + head).to(tl.int64) * HEAD_DIM
    tl.store(out + target + dims, merged.to(out.dtype.element_ty), mask=dims < HEAD_DIM)
