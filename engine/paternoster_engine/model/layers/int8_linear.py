"""A weight matrix in int8, multiplied with rows that are made int8 on the way (W8A8)."""

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_kernels import pick
from paternoster_kernels.reference.weight_only_matmul import quantize_weight


class Int8Linear(Linear):
    """As :class:`Linear`, with one scale an output, made at loading, and one a row of ``x``, made in each call.

    Sums are exact in int32, so a row's result does not depend on the rows beside it.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        gate: Gate | None = None,
        bias: torch.Tensor | None = None,
        *,
        activation: str = "silu",
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self._bias, self._gate = bias, gate
        quantized, self._scales = quantize_weight(weight, torch.int8)
        self.weight = pick("pack_int8_weight", weight.device)(quantized)
        self._matmul = pick("int8_matmul", weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._finish(self._matmul(x, self.weight, self._scales))
