"""Norm, gate, and the best token of each row."""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import library

WIDTH = 16
"""Elements of a vector: rows must be whole ones."""


def _takes(x: torch.Tensor, width: int) -> bool:
    return x.dtype == torch.bfloat16 and width % WIDTH == 0 and x.is_contiguous()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """As the reference: norm of ``x [rows, n]``, or of ``residual + x``, which is then also left in ``residual``."""
    rows, n = x.shape
    if not _takes(x, n) or weight.dtype != x.dtype or not (residual is None or _takes(residual, n)):
        return reference.rms_norm(x, weight, eps, residual)
    out = torch.empty_like(x)
    kept = None if residual is None else residual.data_ptr()
    library().rms_norm(out.data_ptr(), x.data_ptr(), kept, weight.data_ptr(), rows, n, eps, torch.get_num_threads())
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As the reference: ``silu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    if not _takes(gate_up, n):
        return reference.silu_mul(gate_up)
    out = gate_up.new_empty(rows, n)
    library().silu_mul(out.data_ptr(), gate_up.data_ptr(), rows, n, torch.get_num_threads())
    return out


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """As the reference: ``[rows]`` int64 for ``logits [rows, vocab]``, the first of equals."""
    rows, vocab = logits.shape
    if not _takes(logits, vocab):
        return reference.argmax(logits)
    out = torch.empty(rows, dtype=torch.int64)
    library().argmax(out.data_ptr(), logits.data_ptr(), rows, vocab, torch.get_num_threads())
    return out
