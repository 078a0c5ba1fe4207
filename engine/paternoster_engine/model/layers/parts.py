"""What a decoder is put together from: a model's tensors on their device, and the operations for it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.layers.device_linear import device_linear
from paternoster_engine.model.layers.int8_linear import Int8Linear
from paternoster_engine.model.layers.invariant_linear import InvariantLinear
from paternoster_engine.model.layers.linear import NATIVE_ACTIVATIONS, Gate, Linear
from paternoster_engine.model.layers.strip_linear import StripLinear
from paternoster_engine.model.weights.stored import LazyTensor, StackedTensors, StoredRows, block_format, read_into
from paternoster_engine.process_group import Ranks
from paternoster_kernels import pick_invariant, pick_kernel
from paternoster_kernels.blocks import Strips, fits_strips
from paternoster_kernels.cpu.library import load_library
from paternoster_kernels.registry import Op

Quantization = Literal["auto", "none", "int8"]


class Parts:
    """Tensors by the decoder's names, and operations by theirs."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], LazyTensor],
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks,
        *,
        invariant: bool,
        quantization: Quantization,
    ) -> None:
        """``quantization``: auto for matrices in the blocks that a file has, where there are products with them."""
        self.config = config
        self.ranks = ranks
        self.device = device
        self._tensor, self._dtype = tensor, dtype
        self._pick = pick_invariant if invariant else pick_kernel
        # Sums of int8 are exact, and so invariant by themselves.
        self._exact_linear = InvariantLinear if invariant else Linear
        self._int8 = quantization == "int8"
        native = device.type == "cpu" and dtype == torch.bfloat16 and load_library() is not None
        self._in_blocks = quantization == "auto" and native
        # Their tiles depend on the number of rows.
        self._apart = quantization == "auto" and device.type == "cuda" and not invariant
        self.stored_formats: Counter[str] = Counter()
        """Matrices by the format that they stay in."""
        self.unpacked: Counter[str] = Counter()
        """Matrices that are kept as numbers, by the format that the file has them in."""

    def pick_operation(self, name: str) -> Op:
        """The implementation for this device."""
        return self._pick(name, self.device)

    def load_weight(self, *names: str) -> torch.Tensor:
        """Matrices below each other, or a norm ``[size]``."""
        return self._load([name + ".weight" for name in names])

    def load_linear(self, *names: str, gate: Gate | None = None, bias: bool = False) -> Linear:
        """One matrix of several below each other, with their biases."""
        biases = self.load_bias(*names) if bias else None
        activation = self.config.block.activation
        native_gate = gate is not None and activation in NATIVE_ACTIVATIONS
        strips = self._load_strips(names, gated=native_gate)
        if strips is not None:
            return StripLinear(strips, gate, biases, activation=activation, native_gate=native_gate)
        if self._int8:
            stored = self._as_numbers([name + ".weight" for name in names])
            return Int8Linear(StackedTensors(stored, self._dtype, self.device), gate, biases)
        found = self._on_device(names, gate, biases)
        return found or self._exact_linear(self.load_weight(*names), gate, biases, activation=activation)

    def load_table(self, name: str) -> torch.Tensor | Strips:
        """A matrix whose rows are looked up."""
        strips = self._load_strips((name,))
        return self.load_weight(name) if strips is None else strips

    def project_table(self, table: torch.Tensor | Strips) -> Linear:
        """The table as a matrix; in blocks it is held once."""
        if isinstance(table, Strips):
            return StripLinear(table)
        return Int8Linear(table) if self._int8 else self._exact_linear(table)

    def load_bias(self, *names: str) -> torch.Tensor:
        """Load the biases of matrices below each other."""
        return self._load([name + ".bias" for name in names])

    def exact_linear(self, name: str, *, bias: bool = False) -> Linear:
        """A matrix that is never quantized."""
        return self._exact_linear(self.load_weight(name), bias=self.load_bias(name) if bias else None)

    def _load_strips(self, names: Sequence[str], *, gated: bool = False) -> Strips | None:
        """Matrices below each other in the file's blocks; None where they are to be numbers."""
        matrices = [StoredRows(self._tensor(name + ".weight")) for name in names]
        formats = [matrix.format.name for matrix in matrices if matrix.format is not None]
        if not formats or not self._in_blocks or not fits_strips(matrices):
            return None
        self.stored_formats.update(formats)
        strips: Strips = pick_kernel("pack_strips", self.device)(matrices, gated)
        return strips

    def _on_device(self, names: Sequence[str], gate: Gate | None, bias: torch.Tensor | None) -> Linear | None:
        """Matrices below each other for a GPU's products; None where there is none for them."""
        if not self._apart:
            return None
        matrices = [StoredRows(self._tensor(name + ".weight")) for name in names]
        found = device_linear(matrices, self.device, gate, bias)
        if found is not None:
            self.stored_formats.update(matrix.format.name for matrix in matrices if matrix.format is not None)
        return found

    def _as_numbers(self, names: list[str]) -> list[LazyTensor]:
        """Tensors that are not kept in the file's blocks."""
        stored = [self._tensor(name) for name in names]
        self.unpacked.update(found.name for tensor in stored if (found := block_format(tensor)) is not None)
        return stored

    def _load(self, names: list[str]) -> torch.Tensor:
        stored = self._as_numbers(names)
        rows = [tensor.shape[0] for tensor in stored]
        out = torch.empty((sum(rows), *stored[0].shape[1:]), dtype=self._dtype, device=self.device)
        for part, tensor in zip(out.split(rows), stored, strict=True):
            read_into(part, tensor)
        return out
