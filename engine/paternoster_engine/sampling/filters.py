"""Top-k, top-p and min-p: the lowest score a row may draw."""

from dataclasses import dataclass

import torch

TOPK_WIDTHS = (256, 4096)
"""How many of the best tokens are sorted first, before the whole vocabulary is: most rows keep few."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Settings of several rows, ``[rows, 1]`` each; top_k 0, top_p 1 and min_p 0 switch that filter off."""

    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor

    def select_rows(self, index: torch.Tensor) -> "Filters":
        return Filters(self.top_k[index], self.top_p[index], self.min_p[index])


def find_thresholds(scores: torch.Tensor, filters: Filters, widths: tuple[int, ...] = TOPK_WIDTHS) -> torch.Tensor:
    """Lowest score ``[rows, 1]`` that each row of ``scores [rows, vocab]`` (logits over temperature) keeps.

    Top-k comes first; top-p (arXiv 1904.09751) then counts probability among what top-k left; min-p (arXiv
    2407.01082) compares with the best token. A token that ties with the last one kept is kept too, so that the
    order of equals never matters.
    """
    vocab = scores.shape[-1]
    width = min(widths[0], vocab) if widths else vocab
    best = scores.topk(width, dim=-1).values
    found = _find_thresholds_among(best, scores, filters)
    if width < vocab:
        # Where the last token looked at is kept, there may be more; and top-k may reach beyond it.
        wide = ((best[:, -1:] >= found) | (filters.top_k > width)).squeeze(-1).nonzero().squeeze(-1)
        if len(wide):
            found[wide] = find_thresholds(scores[wide], filters.select_rows(wide), widths[1:])
    return found


def _find_thresholds_among(best: torch.Tensor, scores: torch.Tensor, filters: Filters) -> torch.Tensor:
    width = best.shape[-1]
    by_k = (filters.top_k > 0) & (filters.top_k <= width)
    kth = best.gather(-1, torch.where(by_k, filters.top_k, 1) - 1).masked_fill_(~by_k, float("-inf"))
    left = best.masked_fill(best < kth, float("-inf"))
    # Over the whole row: equals of the last score may lie beyond the best ones.
    total = scores.masked_fill(scores < kth, float("-inf")).logsumexp(-1, keepdim=True)
    probability = (left - total).exp()
    before = probability.cumsum(-1) - probability
    num_candidates = ((before < filters.top_p) | (filters.top_p >= 1.0)).sum(-1, keepdim=True).clamp(min=1)
    by_p = left.gather(-1, num_candidates - 1)
    floor = best[:, :1] + filters.min_p.log()
    return torch.maximum(torch.maximum(kth, by_p), floor)
