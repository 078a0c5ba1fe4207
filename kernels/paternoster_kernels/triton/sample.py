"""A token for each row, drawn without sorting the vocabulary.

The lowest score that top-k or top-p keeps is found as a digit search: scores are read as integers of the same order,
and each pass weighs what lies above fifteen pivots at once, which fixes four of the 32 bits.
"""

import torch
import triton
import triton.language as tl

from paternoster_kernels.token_masks import TokenMasks
from paternoster_kernels.triton.gumbel import gumbel_noise, row_key

BLOCK = 1024
NO_TOKEN = tl.constexpr(2**31 - 1)


@triton.jit
def _load_scores(logits, token, vocab, temperature):
    """Logits over temperature, infinity for NaN; adding zero makes -0 equal to 0 as an integer too."""
    return tl.div_rn(_load_logits(logits, token, vocab), temperature) + 0.0


@triton.jit
def _load_logits(logits, token, vocab):
    """In float32; infinity for NaN, which would be lost from a maximum."""
    values = tl.load(logits + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    return tl.where(values != values, float("inf"), values)


@triton.jit
def _chosen_token(best, best_token):
    """The token, or -1 (``NO_TOKEN`` of the reference) where the best score is not finite."""
    return tl.where(tl.abs(best) < float("inf"), best_token, -1).to(tl.int64)


@triton.jit
def _ordered_integer(scores):
    """Float32 as int32 of the same order."""
    bits = scores.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _merge_best(best, best_token, values, token):
    """The first best token so far and its value, over one more block."""
    top = tl.max(values, 0)
    first = tl.min(tl.where(values == top, token, NO_TOKEN), 0)
    return tl.where(top > best, top, best), tl.where(top > best, first, best_token)


@triton.jit
def _weigh_scores(logits, vocab, temperature, best, low, BY_COUNT: tl.constexpr, pivots, BLOCK: tl.constexpr):
    """Weight of the scores that are at least ``low`` and at least each pivot: their number, or their mass."""
    heavier = tl.zeros(pivots.shape, tl.float32)
    for start in range(0, vocab, BLOCK):
        token = start + tl.arange(0, BLOCK)
        scores = _load_scores(logits, token, vocab, temperature)
        order = _ordered_integer(scores).to(tl.int64)
        if BY_COUNT:
            weight = tl.where(token < vocab, 1.0, 0.0)
        else:
            weight = tl.exp(scores - best)
        weight = tl.where(order >= low, weight, 0.0)
        heavier += tl.sum(tl.where(order[:, None] >= pivots[None, :], weight[:, None], 0.0), 0)
    return heavier


@triton.jit
def _find_highest(logits, vocab, temperature, best, low, target, BY_COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Highest score, as an integer, whose equals and betters weigh at least ``target``; ``low`` if none does."""
    floor = low
    high = _ordered_integer(best).to(tl.int64) + 1
    lane = tl.arange(0, 16)
    while high - low > 1:
        step = (high - low + 15) // 16
        # Lane 0 is ``low`` itself; pivots at or beyond ``high`` weigh nothing.
        pivots = low + lane * step
        weight = _weigh_scores(logits, vocab, temperature, best, floor, BY_COUNT, pivots, BLOCK)
        enough = ((weight >= target) & (pivots < high)) | (lane == 0)
        low = tl.max(tl.where(enough, pivots, low), 0)
        high = tl.minimum(high, low + step)
    return low


@triton.jit
def sample_kernel(
    logits, out, temperatures, top_ks, top_ps, min_ps, seeds, positions, vocab, row_stride, BLOCK: tl.constexpr
):
    """Grid: rows."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    temperature = tl.load(temperatures + row)
    greedy = temperature == 0.0
    temperature = tl.where(greedy, 1.0, temperature)
    top_k = tl.load(top_ks + row)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    by_k = (top_k > 0) & (top_k < vocab)

    best = tl.full([], float("-inf"), tl.float32)
    best_token = tl.full([], 0, tl.int32)
    if greedy | by_k | (top_p < 1.0) | (min_p > 0.0):
        for start in range(0, vocab, BLOCK):
            token = start + tl.arange(0, BLOCK)
            scores = _load_scores(logits, token, vocab, temperature)
            best, best_token = _merge_best(best, best_token, scores, token)

    if not greedy:
        # -inf as an ordered integer: below it no score lies.
        low = tl.full([], -2139095041, tl.int64)
        if by_k:
            low = _find_highest(logits, vocab, temperature, best, low, top_k.to(tl.float32), True, BLOCK)
        if top_p < 1.0:
            lane = low + tl.arange(0, 16) * 0
            mass = tl.max(_weigh_scores(logits, vocab, temperature, best, low, False, lane, BLOCK), 0)
            low = _find_highest(logits, vocab, temperature, best, low, top_p * mass, False, BLOCK)
        floor = tl.where(min_p > 0.0, best + tl.log(min_p), float("-inf"))
        key = row_key(tl.load(seeds + row), tl.load(positions + row))
        best = tl.full([], float("-inf"), tl.float32)
        best_token = tl.full([], 0, tl.int32)
        for start in range(0, vocab, BLOCK):
            token = start + tl.arange(0, BLOCK)
            scores = _load_scores(logits, token, vocab, temperature)
            candidate = (_ordered_integer(scores).to(tl.int64) >= low) & (scores >= floor)
            noisy = tl.where(candidate, scores + gumbel_noise(key, token), float("-inf"))
            best, best_token = _merge_best(best, best_token, noisy, token)
    tl.store(out + row, _chosen_token(best, best_token))


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    masks: TokenMasks | None = None,
) -> torch.Tensor:
    """Sample a token for each row; ``logits`` may have any row stride."""
    if masks is not None:
        logits = masks.forbid_tokens(logits)
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    sample_kernel[(rows,)](
        logits, out, temperature, top_k, top_p, min_p, seeds, positions, vocab, logits.stride(0),
        BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    return out


@triton.jit
def argmax_kernel(logits, out, vocab, row_stride, BLOCK: tl.constexpr):
    """Grid: rows."""
    row = tl.program_id(0).to(tl.int64)
    best = tl.full([], float("-inf"), tl.float32)
    best_token = tl.full([], 0, tl.int32)
    for start in range(0, vocab, BLOCK):
        token = start + tl.arange(0, BLOCK)
        values = _load_logits(logits + row * row_stride, token, vocab)
        best, best_token = _merge_best(best, best_token, values, token)
    tl.store(out + row, _chosen_token(best, best_token))


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Greatest logit of each row: ``[rows]`` int64 for ``logits [rows, vocab]``."""
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    argmax_kernel[(rows,)](logits, out, vocab, logits.stride(0), BLOCK=4 * BLOCK, num_warps=8)
    return out
