"""The gate of gpt-oss's experts (arXiv 2508.10925)."""

import torch

ALPHA = 1.702
LIMIT = 7.0


def clamped_swiglu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``(up + 1) * gate * sigmoid(1.702 * gate)``, both first clamped to 7; ``gate_up [rows, 2 * n]``, gate first.

    Returns ``[rows, n]``.
    """
    gate, up = gate_up.chunk(2, -1)
    gate = gate.clamp(max=LIMIT)
    return (up.clamp(-LIMIT, LIMIT) + 1) * gate * torch.sigmoid(ALPHA * gate)
