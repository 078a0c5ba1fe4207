"""Weight matrices of few bits on GPUs: as a product reads them that has their numbers and scales apart."""

from collections.abc import Callable, Sequence

import torch

from paternoster_engine.model.layers.linear import Gate, Linear
from paternoster_engine.model.layers.lora import AddLora
from paternoster_kernels import pick_kernel
from paternoster_kernels.blocks import BlockFormat, Rows

MIDDLE = 8
"""Zero in Q4_0."""
PIECE_ROWS = 512
"""That are taken apart at once."""
SCALES = {"Q4_0": torch.float16, "INT4_F16": torch.float16, "INT4_BF16": torch.bfloat16}
"""Formats of four bits with zero points -> the type of their scales."""


class DeviceLinear(Linear):
    """Linear layer by :func:`int4_matmul` or :func:`weight_only_matmul`."""

    def __init__(
        self,
        fields: Sequence[torch.Tensor],
        operation: str,
        size: tuple[int, int],
        gate: Gate | None = None,
        bias: torch.Tensor | None = None,
    ) -> None:
        """``fields``: what the operation takes behind its rows; ``size``: outputs and inputs."""
        self.out_features, self.in_features = size
        self._gate = gate
        self.bias = self._bias = bias
        self._fields = tuple(fields)
        self.weight = fields[0]
        self._operation: Callable[..., torch.Tensor] = pick_kernel(operation, fields[0].device)

    def __call__(self, x: torch.Tensor, lora: AddLora | None = None) -> torch.Tensor:
        return self._finish(self._operation(x, *self._fields), x, lora)


def device_linear(
    matrices: Sequence[Rows], device: torch.device, gate: Gate | None, bias: torch.Tensor | None
) -> DeviceLinear | None:
    """Matrices below each other that are all of one format; None where no product takes it."""
    formats = {None if matrix.format is None else matrix.format.name for matrix in matrices}
    size = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    (name,) = formats if len(formats) == 1 else (None,)
    if name in SCALES:
        return DeviceLinear(_gather_fields(matrices, _int4_fields, device), "int4_matmul", size, gate, bias)
    if name == "FP8":
        numbers, scales = _gather_fields(matrices, _fp8_fields, device)
        if torch.equal(scales, scales[:, :1].expand_as(scales)):
            return DeviceLinear((numbers, scales[:, 0].contiguous()), "weight_only_matmul", size, gate, bias)
    return None


Fields = tuple[torch.Tensor, ...]


def _gather_fields(
    matrices: Sequence[Rows], read_fields: Callable[[BlockFormat, torch.Tensor], Fields], device: torch.device
) -> Fields:
    """The fields of all rows, a few at a time."""
    pieces = []
    for matrix in matrices:
        found = matrix.format
        assert found is not None
        for first in range(0, matrix.shape[0], PIECE_ROWS):
            rows = matrix.read_rows(first, min(first + PIECE_ROWS, matrix.shape[0]))
            blocks = rows.unflatten(1, (-1, found.bytes))
            pieces.append([field.to(device) for field in read_fields(found, blocks)])
    return tuple(torch.cat(field) for field in zip(*pieces, strict=True))


def _int4_fields(found: BlockFormat, blocks: torch.Tensor) -> Fields:
    """Bytes of inputs i and i + 16 of each 32, scales, zero points."""
    scales = blocks[..., :2].contiguous().view(SCALES[found.name]).squeeze(-1)
    zeros = torch.full(scales.shape, MIDDLE, dtype=torch.uint8) if found.name == "Q4_0" else blocks[..., 2]
    return blocks[..., -16:].flatten(1), scales, zeros.contiguous()


def _fp8_fields(found: BlockFormat, blocks: torch.Tensor) -> Fields:
    """Numbers, and scales of each 32."""
    scales = blocks[..., :4].contiguous().view(torch.float32).squeeze(-1)
    return blocks[..., 4:].flatten(1).view(torch.float8_e4m3fn), scales
