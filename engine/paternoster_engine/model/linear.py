"""A weight matrix ready to be multiplied with."""

import torch
from torch.nn import functional


class Linear:
    """``y = x @ weight.T`` for ``weight [out, in]`` and ``x [rows, in]``.

    A bfloat16 weight on a CPU is reordered once into oneDNN's blocked layout, which torch would otherwise
    redo in every call: about four times faster at the few rows of a decode step.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self._packed = weight.device.type == "cpu" and weight.dtype == torch.bfloat16
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self._packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return functional.linear(x, self._weight)
