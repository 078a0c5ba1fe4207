"""Which rows of a step are beams, and what their searches are told."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.request import Request
from paternoster_engine.sampling.continuations import best_continuations


def tell_continuations(logits: torch.Tensor, requests: Sequence[Request]) -> None:
    """Give each beam of ``requests`` what its row of ``logits [rows, vocab]`` says of the next token."""
    rows = [i for i, request in enumerate(requests) if request.group is not None]
    if not rows:
        return
    counts = [group.num_continuations for i in rows if (group := requests[i].group) is not None]
    for i, continuations in zip(rows, best_continuations(logits[rows], counts), strict=True):
        requests[i].continuations = continuations
