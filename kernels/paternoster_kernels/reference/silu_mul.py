"""The gate of a gated MLP (SwiGLU, arXiv 2002.05202)."""

import torch
from torch.nn import functional


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    gate, up = gate_up.chunk(2, -1)
    return functional.silu(gate).mul_(up)
