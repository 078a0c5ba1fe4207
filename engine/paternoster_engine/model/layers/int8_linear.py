"""A weight matrix in int8, multiplied with rows that are made int8 on the way (W8A8)."""

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_engine.model.layers.lora import AddLora
from paternoster_engine.model.weights.stored import StackedTensors, row_pieces
from paternoster_kernels import pick_kernel
from paternoster_kernels.reference.quantized_matmul import quantize_weight


class Int8Linear(Linear):
    """Linear layer with one scale an output, made at loading, and one a row of ``x``, made in each call.

    Sums are exact in int32, so a row's result does not depend on the rows beside it.
    """

    def __init__(
        self, weight: torch.Tensor | StackedTensors, gate: Gate | None = None, bias: torch.Tensor | None = None
    ) -> None:
        """``weight`` is read a few rows at a time, so that it need not be in memory."""
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self._bias, self._gate = bias, gate
        quantized = torch.empty(self.out_features, self.in_features, dtype=torch.int8, device=weight.device)
        self._scales = torch.empty(self.out_features, device=weight.device)
        for rows in row_pieces(weight.shape):
            quantized[rows], self._scales[rows] = quantize_weight(weight[(rows,)], torch.int8)
        self.weight = pick_kernel("pack_int8_weight", weight.device)(quantized)
        self._matmul = pick_kernel("int8_matmul", weight.device)

    def __call__(self, x: torch.Tensor, lora: AddLora | None = None) -> torch.Tensor:
        return self._finish(self._matmul(x, self.weight, self._scales), x, lora)
