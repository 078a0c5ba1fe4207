"""Norm and gate, on blocks of rows of a size that torch neither divides among threads nor leaves a remainder of."""

from collections.abc import Callable

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu import elementwise
from paternoster_kernels.cpu.library import load_library

UNSHARED = 32_768
"""Elements up to which torch runs an element-wise operation in one thread (its grain size)."""
WHOLE = 64
"""Elements a loop takes at once, at most. A remainder is computed by scalars, whose exponentials are rounded otherwise
than vectors'; it must be the same columns of every row."""


def rows_at_once(width: int) -> int:
    """How many rows of ``width`` elements may share a call."""
    return max(1, UNSHARED // width) if width % WHOLE == 0 else 1


def in_groups(operation: Callable[[slice], torch.Tensor], rows: int, width: int) -> torch.Tensor:
    """Results of ``operation`` for slices of ``rows``, one below the other; ``width``: elements of a row."""
    step = rows_at_once(width)
    parts = [operation(slice(start, start + step)) for start in range(0, max(rows, 1), step)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """RMS norm of each row by itself, as in the reference."""

    operation = reference.rms_norm if load_library() is None else elementwise.rms_norm

    def norm_rows(rows: slice) -> torch.Tensor:
        return operation(x[rows], weight, eps, None if residual is None else residual[rows])

    return in_groups(norm_rows, *x.shape)


def head_norm(
    qkv: torch.Tensor, query_weight: torch.Tensor, key_weight: torch.Tensor, kv_heads: int, eps: float
) -> None:
    """RMS norm of each head in place, as in the reference."""
    operation = reference.head_norm if load_library() is None else elementwise.head_norm
    step = rows_at_once(qkv.shape[1])
    for start in range(0, len(qkv), step):
        operation(qkv[start : start + step], query_weight, key_weight, kv_heads, eps)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` of each row by itself, as in the reference."""
    operation = reference.silu_mul if load_library() is None else elementwise.silu_mul
    return in_groups(lambda rows: operation(gate_up[rows]), len(gate_up), gate_up.shape[1] // 2)
