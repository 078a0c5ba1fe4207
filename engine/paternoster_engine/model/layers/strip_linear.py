"""A weight matrix that is kept in the blocks of few bits that its file has."""

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_kernels import pick
from paternoster_kernels.blocks import Strips


class StripLinear(Linear):
    """As :class:`Linear` in bfloat16, with the same numbers to the last bit: blocks are made them in each product.

    So a row's result does not depend on the rows beside it.
    """

    def __init__(
        self, strips: Strips, gate: Gate | None = None, bias: torch.Tensor | None = None, *, native_gate: bool = False
    ) -> None:
        """``native_gate``: ``strips`` are in turns for the product that has the gate, too."""
        self.out_features, self.in_features = strips.out_features, strips.in_features
        self._gate = None if native_gate else gate
        self._bias = bias
        self.weight = strips
        self._product = pick("strip_gated_matmul" if native_gate else "strip_matmul", strips.data.device)
