"""Rows multiplied by one of several weight matrices each: the products of a mixture of experts."""

import torch
from torch.nn import functional


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Products ``[pairs, out]`` of rows of ``x [rows, in]`` with ``weight [experts, out, in]``.

    ``rows [pairs]`` int64: the row of each pair; expert ``i`` has the pairs from ``starts[i]`` up to ``starts[i + 1]``,
    ``starts [experts + 1]`` int32.
    """
    out = x.new_zeros(len(rows), weight.shape[1])
    for expert, (first, stop) in enumerate(zip(starts.tolist(), starts.tolist()[1:], strict=False)):
        if first < stop:
            out[first:stop] = functional.linear(x[rows[first:stop]], weight[expert])
    return out
