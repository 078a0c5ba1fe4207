"""Norm, gate, rotary embedding with the cache write, and the best token of each row."""

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


def rope_kv_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    rotary_table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    kv_scales: torch.Tensor | None = None,
) -> None:
    """As the reference; here the rotary table is float32 and turns whole heads, and the cache is not quantised."""
    kv_heads, block_size, width = cache.shape[1:]
    head_dim = width // 2
    plain = kv_scales is None and rotary_table.dtype == torch.float32 and rotary_table.shape[1] == head_dim
    if not (plain and _takes(qkv, head_dim // 2) and _takes(cache, head_dim) and rotary_table.is_contiguous()):
        reference.rope_kv_write(qkv, positions, rotary_table, cache, slots, kv_scales)
        return
    library().rope_kv_write(
        qkv.data_ptr(),
        positions.data_ptr(),
        rotary_table.data_ptr(),
        cache.data_ptr(),
        slots.data_ptr(),
        len(qkv),
        qkv.shape[1] // head_dim - 2 * kv_heads,
        kv_heads,
        head_dim,
        block_size,
        torch.get_num_threads(),
    )


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """As the reference: ``[rows]`` int64 for ``logits [rows, vocab]``, the first of equals."""
    rows, vocab = logits.shape
    if not _takes(logits, vocab):
        return reference.argmax(logits)
    out = torch.empty(rows, dtype=torch.int64)
    library().argmax(out.data_ptr(), logits.data_ptr(), rows, vocab, torch.get_num_threads())
    return out
