"""Which rows of a step belong to sequences that ask for their most likely next tokens, and what these are."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.request import Continuations, Request
from paternoster_engine.sampling.continuations import best_continuations


def collect_continuations(logits: torch.Tensor, requests: Sequence[Request]) -> dict[Request, Continuations]:
    """What the rows of ``logits [rows, vocab]`` say of the next token, for those of ``requests`` that ask."""
    rows = [i for i, request in enumerate(requests) if request.branch_selector is not None]
    if not rows:
        return {}
    counts = [b.num_continuations for i in rows if (b := requests[i].branch_selector) is not None]
    best = best_continuations(logits[rows], counts)
    return {requests[i]: continuations for i, continuations in zip(rows, best, strict=True)}
