"""Root-mean-square norm (arXiv 1910.07467), with the residual addition before it."""

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Norm of ``x [rows, n]``, or of ``residual + x``, which is then also left in ``residual``."""
    if residual is not None:
        x = residual.add_(x)
    return functional.rms_norm(x, weight.shape, weight, eps)
