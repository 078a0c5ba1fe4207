"""Norms, gates, and the best token of each row."""

from enum import IntEnum

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import require_library

WIDTH = 16
"""Elements of a vector: rows must be whole ones."""


class Gate(IntEnum):
    """Gates as ``native/gate.h`` numbers them."""

    NONE = 0
    SILU = 1
    GELU = 2


def _is_supported(x: torch.Tensor, width: int) -> bool:
    return x.dtype == torch.bfloat16 and width % WIDTH == 0 and x.is_contiguous()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """RMS norm of ``x [rows, n]``, or of ``residual + x``, which is then also left in ``residual``."""
    rows, n = x.shape
    if not _is_supported(x, n) or weight.dtype != x.dtype or not (residual is None or _is_supported(residual, n)):
        return reference.rms_norm(x, weight, eps, residual)
    out = torch.empty_like(x)
    residual_address = None if residual is None else residual.data_ptr()
    require_library().rms_norm(
        out.data_ptr(), x.data_ptr(), residual_address, weight.data_ptr(), rows, n, eps, torch.get_num_threads()
    )
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    return (
        _apply_gate(gate_up, Gate.SILU)
        if _is_supported(gate_up, gate_up.shape[1] // 2)
        else reference.silu_mul(gate_up)
    )


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) * up``, in its tanh form."""
    return (
        _apply_gate(gate_up, Gate.GELU)
        if _is_supported(gate_up, gate_up.shape[1] // 2)
        else reference.gelu_mul(gate_up)
    )


def _apply_gate(gate_up: torch.Tensor, gate: Gate) -> torch.Tensor:
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, n)
    require_library().gated_mul(out.data_ptr(), gate_up.data_ptr(), rows, n, gate, torch.get_num_threads())
    return out


def head_norm(
    qkv: torch.Tensor, query_weight: torch.Tensor, key_weight: torch.Tensor, kv_heads: int, eps: float
) -> None:
    """RMS norm of each head in place, as in the reference."""
    rows, width = qkv.shape
    head_dim = len(query_weight)
    if not _is_supported(qkv, head_dim) or query_weight.dtype != qkv.dtype or key_weight.dtype != qkv.dtype:
        reference.head_norm(qkv, query_weight, key_weight, kv_heads, eps)
        return
    heads = width // head_dim - 2 * kv_heads
    for weight, first, count in ((query_weight, 0, heads), (key_weight, heads, kv_heads)):
        part = qkv[:, first * head_dim :]
        require_library().norm_parts(
            part.data_ptr(), weight.data_ptr(), rows, width, count, head_dim, eps, torch.get_num_threads()
        )


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Greatest logit of each row: ``[rows]`` int64 for ``logits [rows, vocab]``, the first of equals."""
    rows, vocab = logits.shape
    if not _is_supported(logits, vocab):
        return reference.argmax(logits)
    out = torch.empty(rows, dtype=torch.int64)
    require_library().argmax(out.data_ptr(), logits.data_ptr(), rows, vocab, torch.get_num_threads())
    return out
