"""A layer's gated MLP."""

from collections.abc import Iterator

import torch

from paternoster_engine.model.layers.linear import Linear
from paternoster_engine.model.layers.lora import LayerLora
from paternoster_engine.model.layers.parts import Parts

GATES = {"silu": "silu_mul", "gelu": "gelu_mul", "clamped_swiglu": "clamped_swiglu_mul"}
"""Activation -> the operation that gates with it."""


class Mlp:
    """``down(activation(gate(x)) * up(x))`` (GLU variants, arXiv 2002.05202)."""

    def __init__(self, parts: Parts, prefix: str) -> None:
        block = parts.config.block
        self._ranks = parts.ranks
        gate = parts.pick_operation(GATES[block.activation])
        self._gate_up = parts.load_linear(prefix + "gate_proj", prefix + "up_proj", gate=gate, bias=block.mlp_bias)
        self._down = parts.load_linear(prefix + "down_proj", bias=block.mlp_bias)

    def __call__(self, hidden: torch.Tensor, lora: LayerLora | None = None) -> torch.Tensor:
        """What is added to the residual, ``[tokens, hidden]``."""
        return self._ranks.all_reduce(self.compute_part(hidden, lora))

    def compute_part(self, hidden: torch.Tensor, lora: LayerLora | None = None) -> torch.Tensor:
        """This rank's part of it."""
        if lora is None:
            return self._down(self._gate_up(hidden))
        half = self._gate_up.out_features // 2
        gated = self._gate_up(hidden, lora.of_matrix("gate_up", (half, half)))
        return self._down(gated, lora.of_matrix("down", (self._down.out_features,)))

    def iterate_linears(self) -> Iterator[Linear]:
        """Both matrices, the one with the gate first."""
        yield from (self._gate_up, self._down)
