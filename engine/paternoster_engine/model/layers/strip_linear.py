"""A weight matrix that is kept in the blocks of few bits that its file has."""

from functools import partial

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_kernels import pick_kernel
from paternoster_kernels.blocks import Strips


class StripLinear(Linear):
    """Linear layer of blocks, to the last bit the bfloat16 one: numbers are made of them in each product.

    So a row's result does not depend on the rows beside it.
    """

    def __init__(
        self,
        strips: Strips,
        gate: Gate | None = None,
        bias: torch.Tensor | None = None,
        *,
        activation: str = "silu",
        native_gate: bool = False,
    ) -> None:
        """``native_gate``: ``strips`` are in turns for the product that has the gate, too."""
        self.out_features, self.in_features = strips.out_features, strips.in_features
        self.bias = bias
        # The product does the bias.
        self._bias, self._gate = None, None if native_gate else gate
        self.weight = strips
        self._ungated = pick_kernel("strip_matmul", strips.data.device) if native_gate else None
        self._activation = activation
        if native_gate:
            product = pick_kernel("strip_gated_matmul", strips.data.device)
            self._product = partial(product, bias=bias, gelu=activation == "gelu")
        else:
            self._product = partial(pick_kernel("strip_matmul", strips.data.device), bias=bias)
