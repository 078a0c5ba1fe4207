"""A matrix with a bias, and what is made of its products."""

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from paternoster_engine.model.encoders.config import Activation
from paternoster_engine.model.layers.linear import has_onednn_product

ACTIVATIONS: Mapping[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}
_FUSED: Mapping[Activation | None, tuple[str, str]] = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
}


class Dense:
    """``activation(x @ weight.T + bias)`` for ``weight [out, in]``, ``x [rows, in]``, in the weight's type.

    One operation of oneDNN where that has the type, on a weight in its own order (docs/embeddings.md says how much
    faster).
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, activation: Activation | None) -> None:
        self._bias, self._activation, self._dtype = bias, activation, weight.dtype
        self._fused = has_onednn_product(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self._fused else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` may be of another type."""
        x = x.to(self._dtype)
        if self._fused:
            attribute, algorithm = _FUSED[self._activation]
            product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._weight, self._bias, attribute, [], algorithm
            )
            return product
        product = functional.linear(x, self._weight, self._bias)
        return product if self._activation is None else ACTIVATIONS[self._activation](product)
