"""Products of adapters, which are added to those of one step's matrices."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from paternoster_kernels.lora_batch import LoraBatch
from paternoster_kernels.registry import Op

AddLora = Callable[[torch.Tensor, torch.Tensor], None]
"""Adds to the product of a matrix, ``[rows, outputs]``, what adapters make of its inputs, ``[rows, inputs]``."""
MATRICES: Mapping[str, int] = {"qkv": 0, "out": 3, "gate_up": 4, "down": 6}
"""Matrices of a layer as they are multiplied with -> the first of those in each, of seven."""
LAYER_MATRICES = 7


class LayerLora:
    """One layer's part of a step's adapters."""

    def __init__(self, add_lora: Op, batch: LoraBatch, layer: int) -> None:
        self._add, self._batch, self._first = add_lora, batch, layer * LAYER_MATRICES

    def of_matrix(self, name: str, widths: Sequence[int]) -> AddLora:
        """Bind the matrix ``name`` of :data:`MATRICES`; ``widths``: outputs of each of those in it."""
        return partial(self._add, batch=self._batch, first=self._first + MATRICES[name], widths=widths)
