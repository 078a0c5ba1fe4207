"""Products by a weight matrix that is put into the order in which they read it, once."""

import torch

from paternoster_kernels.reference.gelu_mul import gelu_mul
from paternoster_kernels.reference.silu_mul import silu_mul


def pack_weight(weight: torch.Tensor, gated: bool = False) -> torch.Tensor:
    """``weight [out, in]`` in the order in which :func:`packed_matmul` reads it; here as it is.

    ``gated``: for :func:`packed_gated_matmul`; its first half of outputs opens for the other.
    """
    return weight


def packed_matmul(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias`` for ``x [rows, in]``, ``bias [out]``; ``[rows, out]``."""
    return torch.nn.functional.linear(x, packed, bias)


def packed_gated_matmul(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None, *, gelu: bool = False
) -> torch.Tensor:
    """``silu(gate) * up`` where ``x @ weight.T + bias`` is ``gate`` and ``up`` side by side; ``[rows, out / 2]``.

    ``gelu``: ``gelu(gate) * up``, in its tanh form.
    """
    return (gelu_mul if gelu else silu_mul)(packed_matmul(x, packed, bias))
