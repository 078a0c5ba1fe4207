"""What a decoder is put together from: a model's tensors on their device, and the operations for it."""

from collections.abc import Callable

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.layers.int8_linear import Int8Linear
from paternoster_engine.model.layers.invariant_linear import InvariantLinear
from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_engine.model.weights.stored import Stored, read_into
from paternoster_engine.parallel.ranks import Ranks
from paternoster_kernels import pick, pick_invariant
from paternoster_kernels.registry import Op


class Parts:
    """Tensors by the decoder's names, and operations by theirs."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], Stored],
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks,
        *,
        invariant: bool,
        int8: bool,
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.device = device
        self._tensor, self._dtype = tensor, dtype
        self._pick = pick_invariant if invariant else pick
        # Sums of int8 are exact, and so invariant by themselves.
        self._exact_linear = InvariantLinear if invariant else Linear
        self._linear = Int8Linear if int8 else self._exact_linear

    def operation(self, name: str) -> Op:
        """The implementation for this device."""
        return self._pick(name, self.device)

    def weight(self, *names: str) -> torch.Tensor:
        """Matrices below each other, or a norm ``[size]``."""
        return self._load([name + ".weight" for name in names])

    def matrix(self, weight: torch.Tensor, gate: Gate | None = None, bias: torch.Tensor | None = None) -> Linear:
        """Ready to be multiplied with."""
        return self._linear(weight, gate, bias, silu=self.config.block.activation == "silu")

    def linear(self, *names: str, gate: Gate | None = None, bias: bool = False) -> Linear:
        """One matrix of several below each other, with their biases."""
        return self.matrix(self.weight(*names), gate, self.bias(*names) if bias else None)

    def bias(self, *names: str) -> torch.Tensor:
        """Of matrices below each other."""
        return self._load([name + ".bias" for name in names])

    def exact(self, name: str, *, bias: bool = False) -> Linear:
        """A matrix that is never quantized."""
        return self._exact_linear(self.weight(name), bias=self.bias(name) if bias else None)

    def _load(self, names: list[str]) -> torch.Tensor:
        stored = [self._tensor(name) for name in names]
        rows = [tensor.shape[0] for tensor in stored]
        out = torch.empty((sum(rows), *stored[0].shape[1:]), dtype=self._dtype, device=self.device)
        for part, tensor in zip(out.split(rows), stored, strict=True):
            read_into(part, tensor)
        return out
