"""Rotary position embedding in the rotate-half order (arXiv 2104.09864)."""

import torch


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate ``x [tokens, heads, head_dim]`` in place.

    ``cos`` and ``sin``: ``[tokens, 1, head_dim]``, the first half of ``sin`` negated.
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    x.mul_(cos).addcmul_(swapped, sin)
