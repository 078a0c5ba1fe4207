"""A weight matrix ready to be multiplied with."""

from collections.abc import Callable

import torch
from torch.nn import functional

from paternoster_kernels import pick
from paternoster_kernels.blocks import Strips

Gate = Callable[[torch.Tensor], torch.Tensor]
"""Of ``[rows, 2 * n]``, gate first, ``[rows, n]``."""


class Linear:
    """``y = x @ weight.T + bias`` for ``weight [out, in]``, ``x [rows, in]``; with a ``gate``, what it makes of ``y``.

    A bfloat16 weight on a CPU is put into another order once: into tiles for the native product, which also does the
    gate, or where there is none into oneDNN's blocked layout, which torch would otherwise make anew in every call.
    """

    def __init__(
        self, weight: torch.Tensor, gate: Gate | None = None, bias: torch.Tensor | None = None, *, silu: bool = True
    ) -> None:
        """``silu``: the gate is SiLU's, which is the one that the native product has."""
        self.out_features, self.in_features = weight.shape
        self._gate = gate
        self._bias = bias
        self.weight: torch.Tensor | Strips = weight
        """As it is multiplied with."""
        self._product: Callable[..., torch.Tensor] = functional.linear
        if weight.device.type == "cpu" and weight.dtype == torch.bfloat16:
            gated = gate is not None and bias is None and silu
            packed = pick("pack_weight", weight.device)(weight, gated)
            if self.in_native_tiles(packed):
                self.weight = packed
                if gated:
                    self._gate = None
                self._product = pick("packed_gated_matmul" if gated else "packed_matmul", weight.device)
            else:
                self.weight, self._product = torch.ops.mkldnn._reorder_linear_weight(weight), _blocked

    @staticmethod
    def in_native_tiles(weight: torch.Tensor | Strips) -> bool:
        """Whether rows are summed one by one, whatever the others are."""
        return isinstance(weight, Strips) or weight.dim() > 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._finish(self._product(x, self.weight))

    def _finish(self, product: torch.Tensor) -> torch.Tensor:
        """With bias and gate."""
        if self._bias is not None:
            product = product.add_(self._bias)
        return product if self._gate is None else self._gate(product)


def _blocked(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
