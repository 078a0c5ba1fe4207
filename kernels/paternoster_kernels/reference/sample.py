"""A token for each row: greedy, or a draw from what top-k, top-p and min-p leave; the random number has no state."""

import torch

from paternoster_kernels.token_masks import TokenMasks

GOLDEN = -7046029254386353131
"""2**64 over the golden ratio, as a signed number."""
NO_TOKEN = -1
"""Result for a row that contains NaN, whose best logit is infinite, or whose mask allows no token."""


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
    """Sample tokens ``[rows]`` int64 that ``masks`` allow from ``logits [rows, vocab]``, or :data:`NO_TOKEN`.

    ``temperature``, ``top_p``, ``min_p`` ``[rows]`` float32; ``top_k [rows]`` int32; ``seeds``, ``positions``
    ``[rows]`` int64. Temperature 0 takes the best token, the first of equals. Top-k 0, top-p 1, min-p 0 are off.
    Gumbel-max: the best of score plus noise is a draw from the softmax; noise is a function of seed, position, token.
    """
    scores = (
        logits.to(torch.promote_types(logits.dtype, torch.float32)) if masks is None else masks.forbid_tokens(logits)
    )
    greedy = temperature == 0
    scores = scores / torch.where(greedy, 1.0, temperature)[:, None]
    noisy = scores + gumbel_noise(seeds, positions, scores.shape[1]).to(scores.dtype)
    noisy.masked_fill_(scores < find_threshold(scores, top_k, top_p, min_p)[:, None], float("-inf"))
    return torch.where(scores.amax(-1).isfinite(), torch.where(greedy[:, None], scores, noisy).argmax(-1), NO_TOKEN)


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The best token of each row, the first of equals, or :data:`NO_TOKEN`: ``[rows]`` int64 for ``[rows, vocab]``."""
    best = logits.amax(-1, keepdim=True)
    return torch.where(best.squeeze(-1).isfinite(), (logits == best).int().argmax(-1), NO_TOKEN)


def find_threshold(scores: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Lowest score ``[rows]`` that each row of ``scores [rows, vocab]`` keeps.

    Top-k first; top-p (arXiv 1904.09751) is the share of what top-k left; min-p (arXiv 2407.01082) compares with the
    best token. Equals of the last token kept are kept.
    """
    ranked = scores.sort(-1, descending=True).values
    vocab = scores.shape[1]
    k = torch.where((top_k > 0) & (top_k < vocab), top_k, vocab).long()[:, None]
    by_k = ranked.gather(1, k - 1)
    left = ranked.masked_fill(ranked < by_k, float("-inf"))
    mass = left.softmax(-1)
    num_left = ((mass.cumsum(-1) - mass < top_p[:, None]) | (top_p >= 1)[:, None]).sum(-1, keepdim=True).clamp(min=1)
    # Rows with -inf in them are kept whole when no filter is on.
    by_p = torch.where((top_p < 1)[:, None], left.gather(1, num_left - 1), float("-inf"))
    by_k = torch.where(k < vocab, by_k, float("-inf"))
    return torch.maximum(torch.maximum(by_k, by_p), ranked[:, :1] + min_p.log()[:, None]).squeeze(1)


def gumbel_noise(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Standard Gumbel noise ``[rows, vocab]`` float32: SplitMix64 of (seed, position), then mixed with each token."""
    words = _splitmix64(_splitmix64(seeds) ^ positions)[:, None]
    low, high = words & 0xFFFFFFFF, _shift_right(words, 32)
    x = torch.arange(vocab, device=seeds.device) * 0x9E3779B1 + low & 0xFFFFFFFF
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= high
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    x ^= x >> 16
    # Uniform in (0, 1) with its finest steps near 0: -log1p(-u) is exponential, and small ones win.
    uniform = ((x & 0x7FFFFFFF).float() + 0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _splitmix64(x: torch.Tensor) -> torch.Tensor:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014) in int64, which wraps as uint64 does."""
    x = x + GOLDEN
    x = (x ^ _shift_right(x, 30)) * -4658895280553007687
    x = (x ^ _shift_right(x, 27)) * -7723592293110705685
    return x ^ _shift_right(x, 31)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
