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


def best_tokens(scores: torch.Tensor, total: torch.Tensor, counts: Sequence[int]) -> Iterator[list[tuple[int, float]]]:
    """Yield the ``counts[i]`` best tokens of row ``i`` and their log probabilities, best first, of equals the lower id.

    ``scores [rows, vocab]`` in float32, ``total [rows, 1]`` their logsumexp. Which of several equals ``topk`` selects
    depends on how many it selects, so on what other rows request: where the last token has equals beyond it, the
    row is searched for them. No more tokens than there are in the vocabulary.
    """
    most = min(max(counts), scores.shape[-1])
    # One more than requested, to see whether it equals the last.
    best = scores.topk(min(most + 1, scores.shape[-1]) if most else 0, dim=-1)
    for row, ids, values, logprobs, count in zip(
        scores, best.indices.tolist(), best.values.tolist(), (best.values - total).tolist(), counts, strict=True
    ):
        found = sorted(zip(ids, values, logprobs, strict=True), key=lambda token: (-token[1], token[0]))[:count]
        if 0 < count < len(ids) and values[count - 1] == values[count]:
            found = [token for token in found if token[1] > values[count]]
            equals = (row == values[count]).nonzero().squeeze(-1)[: count - len(found)].tolist()
            found += [(token, values[count], logprobs[count]) for token in equals]
        yield [(token, logprob) for token, _, logprob in found]


def _report_tokens(scores: torch.Tensor, tokens: Sequence[int], num_top: Sequence[int]) -> Iterator[TokenLogprobs]:
    total = scores.logsumexp(-1, keepdim=True)
    chosen = scores.gather(-1, torch.tensor(tokens, device=scores.device).unsqueeze(-1))
    ranks = (scores > chosen).sum(-1) + 1
    for token, logprob, rank, top in zip(
        tokens, (chosen - total).squeeze(-1).tolist(), ranks.tolist(), best_tokens(scores, total, num_top), strict=True
    ):
        yield TokenLogprobs(token, logprob, rank, tuple(top))
