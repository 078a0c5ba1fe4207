"""The gates of gated MLPs: GLU variants (arXiv 2002.05202), and the one of gpt-oss's experts (arXiv 2508.10925)."""

import torch
from torch.nn import functional

# Of gpt-oss.
ALPHA = 1.702
LIMIT = 7.0


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU: ``silu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    gate, up = gate_up.chunk(2, -1)
    return functional.silu(gate).mul_(up)


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """GeGLU: ``gelu(gate) * up``, in its tanh form; ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    gate, up = gate_up.chunk(2, -1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


def clamped_swiglu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``(up + 1) * gate * sigmoid(1.702 * gate)``, both first clamped to 7; ``gate_up [rows, 2 * n]``, gate first.

    Returns ``[rows, n]``.
    """
    gate, up = gate_up.chunk(2, -1)
    gate = gate.clamp(max=LIMIT)
    return (up.clamp(-LIMIT, LIMIT) + 1) * gate * torch.sigmoid(ALPHA * gate)
