"""A weight matrix ready to be multiplied with."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

from paternoster_engine.model.layers.lora import AddLora
from paternoster_kernels import pick_kernel
from paternoster_kernels.blocks import STRIP, Strips

Gate = Callable[[torch.Tensor], torch.Tensor]
"""Activation of ``[rows, 2 * n]``, gate first, giving ``[rows, n]``."""
NATIVE_ACTIVATIONS = ("silu", "gelu")
"""Activations of gates that the native product does too."""


class Linear:
    """``y = x @ weight.T + bias`` for ``weight [out, in]``, ``x [rows, in]``; with a ``gate``, what it makes of ``y``.

    A bfloat16 weight on a CPU is put into another order once: into tiles for the native product, which also does bias
    and gate, or where there is none into oneDNN's blocked layout, which torch would otherwise make anew in every call.
    A CPU without AVX-512 multiplies bfloat16 weights that have no tiles as they are.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        gate: Gate | None = None,
        bias: torch.Tensor | None = None,
        *,
        activation: str = "silu",
    ) -> None:
        """``activation``: the gate's, as :class:`Block` names it."""
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        # What is left to do after the product.
        self._bias, self._gate = bias, gate
        self._ungated: Callable[..., torch.Tensor] | None = None
        self.weight: torch.Tensor | Strips = weight
        """Weight in the form that it is multiplied in."""
        self._product: Callable[..., torch.Tensor] = functional.linear
        if weight.device.type == "cpu" and weight.dtype == torch.bfloat16:
            gated = gate is not None and activation in NATIVE_ACTIVATIONS
            packed = pick_kernel("pack_weight", weight.device)(weight, gated)
            if self.in_native_tiles(packed):
                self.weight, self._bias = packed, None
                if gated:
                    self._gate, self._ungated = None, pick_kernel("packed_matmul", weight.device)
                    self._activation = activation
                    product = pick_kernel("packed_gated_matmul", weight.device)
                    self._product = partial(product, bias=bias, gelu=activation == "gelu")
                else:
                    self._product = partial(pick_kernel("packed_matmul", weight.device), bias=bias)
            elif has_onednn_product(weight):
                self.weight, self._product = torch.ops.mkldnn._reorder_linear_weight(weight), _multiply_blocks

    @staticmethod
    def in_native_tiles(weight: torch.Tensor | Strips) -> bool:
        """Whether rows are summed one by one, whatever the others are."""
        return isinstance(weight, Strips) or weight.dim() > 2

    def __call__(self, x: torch.Tensor, lora: AddLora | None = None) -> torch.Tensor:
        """``lora`` adds to the product before the gate."""
        if lora is not None and self._ungated is not None:
            return self._multiply_ungated(x, self._ungated, lora)
        return self._finish(self._product(x, self.weight), x, lora)

    def _finish(self, product: torch.Tensor, x: torch.Tensor, lora: AddLora | None) -> torch.Tensor:
        """Multiply, with bias, adapters and gate."""
        if self._bias is not None:
            product = product.add_(self._bias)
        if lora is not None:
            lora(product, x)
        return product if self._gate is None else self._gate(product)

    def _multiply_ungated(self, x: torch.Tensor, multiply: Callable[..., torch.Tensor], lora: AddLora) -> torch.Tensor:
        """Multiply by a weight whose strips of gate and up are in turns; the gate is the product's own."""
        product = multiply(x, self.weight).unflatten(1, (-1, 2, STRIP)).transpose(1, 2).flatten(1)
        if self.bias is not None:
            product.add_(self.bias)
        lora(product, x)
        opened: torch.Tensor = pick_kernel(f"{self._activation}_mul", product.device)(product)
        return opened


def has_onednn_product(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies with ``weight`` here: on a CPU, of 16-bit types only with some instruction sets."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    match weight.dtype:
        case torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        case torch.float16:
            return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return True


def _multiply_blocks(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return out
