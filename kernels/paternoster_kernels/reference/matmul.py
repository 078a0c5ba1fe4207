"""Products by weight matrices: one, one of several for each row, one put into the order in which it is read."""

import torch
from torch.nn import functional

from paternoster_kernels.reference.gates import gelu_mul, silu_mul


def matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T`` for ``x [rows, in]`` and ``weight [out, in]``; ``[rows, out]``."""
    return functional.linear(x, weight)


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Products ``[pairs, out]`` of rows of ``x [rows, in]`` with ``weight [experts, out, in]``: a mixture of experts.

    ``rows [pairs]`` int64: the row of each pair; expert ``i`` has the pairs from ``starts[i]`` up to ``starts[i + 1]``,
    ``starts [experts + 1]`` int32.
    """
    out = x.new_zeros(len(rows), weight.shape[1])
    for expert, (first, stop) in enumerate(zip(starts.tolist(), starts.tolist()[1:], strict=False)):
        if first < stop:
            out[first:stop] = functional.linear(x[rows[first:stop]], weight[expert])
    return out


def pack_weight(weight: torch.Tensor, gated: bool = False) -> torch.Tensor:
    """``weight [out, in]`` in the order in which :func:`packed_matmul` reads it; here as it is.

    ``gated``: for :func:`packed_gated_matmul`; its first half of outputs opens for the other.
    """
    return weight


def packed_matmul(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias`` for ``x [rows, in]``, ``bias [out]``; ``[rows, out]``."""
    return functional.linear(x, packed, bias)


def packed_gated_matmul(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None, *, gelu: bool = False
) -> torch.Tensor:
    """``silu(gate) * up`` where ``x @ weight.T + bias`` is ``gate`` and ``up`` side by side; ``[rows, out / 2]``.

    ``gelu``: ``gelu(gate) * up``, in its tanh form.
    """
    return (gelu_mul if gelu else silu_mul)(packed_matmul(x, packed, bias))
