"""The gate of a gated MLP with GELU in its tanh form (GeGLU, arXiv 2002.05202)."""

import torch
from torch.nn import functional


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    gate, up = gate_up.chunk(2, -1)
    return functional.gelu(gate, approximate="tanh").mul_(up)
