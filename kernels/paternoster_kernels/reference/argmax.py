"""The best token of each row."""

import torch


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """``[rows]`` int64 for ``logits [rows, vocab]``, the first of equals."""
    best = logits.amax(-1, keepdim=True)
    return (logits == best).int().argmax(-1)
