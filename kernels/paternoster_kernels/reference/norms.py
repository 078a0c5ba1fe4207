"""Root-mean-square norms (arXiv 1910.07467): of rows, and of each query and key in them (Qwen3, arXiv 2505.09388)."""

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Norm of ``x [rows, n]``, or of ``residual + x``, which is then also left in ``residual``."""
    if residual is not None:
        x = residual.add_(x)
    return functional.rms_norm(x, weight.shape, weight, eps)


def head_norm(
    qkv: torch.Tensor, query_weight: torch.Tensor, key_weight: torch.Tensor, kv_heads: int, eps: float
) -> None:
    """Norm the heads of ``qkv`` in place, all but the values.

    ``qkv [tokens, (heads + 2 * kv_heads) * head_dim]``: all query heads, all key heads, all value heads.
    ``query_weight``, ``key_weight`` ``[head_dim]``: one for all query heads and one for all key heads.
    """
    heads = qkv.unflatten(1, (-1, len(query_weight)))
    num_heads = heads.shape[1] - 2 * kv_heads
    for part, weight in ((heads[:, :num_heads], query_weight), (heads[:, num_heads:-kv_heads], key_weight)):
        part.copy_(functional.rms_norm(part, weight.shape, weight, eps))
