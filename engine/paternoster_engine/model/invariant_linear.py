"""A weight matrix whose products with a row do not depend on what other rows there are."""

import torch

from paternoster_engine.model.linear import Linear
from paternoster_kernels import pick
from paternoster_kernels.invariant.matmul import in_tiles


class InvariantLinear(Linear):
    """As :class:`Linear`, by one shape of tile: in Triton on CUDA, by the library of torch on CPUs."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight)
        self._matmul = pick("matmul", weight.device) if weight.is_cuda else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._matmul is not None:
            return self._matmul(x, self._weight)
        return in_tiles(super().__call__, x)
