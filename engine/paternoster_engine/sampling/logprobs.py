"""Log probabilities of chosen tokens and of the best ones in their place."""

from collections.abc import Iterator, Sequence

import torch

from paternoster_engine.core.request import TokenLogprobs

ROWS_AT_ONCE = 64
"""Rows whose float32 scores are held at the same time: the rows of a long prompt would fill the memory."""


def token_logprobs(logits: torch.Tensor, tokens: Sequence[int], num_top: Sequence[int]) -> Iterator[TokenLogprobs]:
    """Log-softmax of each row of ``logits [rows, vocab]`` at its token of ``tokens`` and at its ``num_top`` best.

    In float32 whatever the logits are. Tokens of the same logit, frequent in bfloat16, share a rank; of the best ones
    that with the lower id comes first, as greedy sampling has it.
    """
    for start in range(0, len(tokens), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        yield from _report_tokens(logits[rows].float(), tokens[rows], num_top[rows])


def _report_tokens(scores: torch.Tensor, tokens: Sequence[int], num_top: Sequence[int]) -> Iterator[TokenLogprobs]:
    total = scores.logsumexp(-1, keepdim=True)
    chosen = scores.gather(-1, torch.tensor(tokens, device=scores.device).unsqueeze(-1))
    ranks = (scores > chosen).sum(-1) + 1
    best = scores.topk(max(num_top), dim=-1)
    for token, logprob, rank, ids, values, count in zip(
        tokens,
        (chosen - total).squeeze(-1).tolist(),
        ranks.tolist(),
        best.indices.tolist(),
        (best.values - total).tolist(),
        num_top,
        strict=True,
    ):
        top = sorted(zip(ids[:count], values[:count], strict=True), key=lambda pair: (-pair[1], pair[0]))
        yield TokenLogprobs(token, logprob, rank, tuple(top))
