"""A weight matrix whose products with a row do not depend on what other rows there are."""

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_kernels import pick_kernel
from paternoster_kernels.invariant.matmul import in_tiles


class InvariantLinear(Linear):
    """Batch-invariant :class:`Linear`: one shape of tile in Triton on CUDA, native on CPUs, or else tiles of rows."""

    def __init__(
        self,
        weight: torch.Tensor,
        gate: Gate | None = None,
        bias: torch.Tensor | None = None,
        *,
        activation: str = "silu",
    ) -> None:
        super().__init__(weight, gate, bias, activation=activation)
        if weight.is_cuda:
            self._product = pick_kernel("matmul", weight.device)
        elif not self.in_native_tiles(self.weight):
            product = self._product
            self._product = lambda x, weight: in_tiles(lambda rows: product(rows, weight), x)
