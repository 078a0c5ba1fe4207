"""A product by a weight matrix."""

import torch


def matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T`` for ``x [rows, in]`` and ``weight [out, in]``; ``[rows, out]``."""
    return torch.nn.functional.linear(x, weight)
