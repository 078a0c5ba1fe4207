"""Matrices of floats of eight bits (e4m3) with scales: one a matrix, one an output, or one for a block of both."""

import torch

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.weights.safetensors_file import FileTensor
from paternoster_engine.model.weights.stored import Cut, whole_cut
from paternoster_kernels.blocks import FORMATS, BlockFormat


class Fp8Tensor:
    """A :class:`.stored.InBlocks` of ``number * scale``; a block has 32 inputs and a scale in float32."""

    def __init__(self, name: str, numbers: FileTensor, scales: torch.Tensor, block: tuple[int, int] | None) -> None:
        """``block``: outputs and inputs of a scale, where there are several of both.

        Raises :class:`ModelError` where the shape of ``scales`` is none of these.
        """
        self._numbers, self.shape = numbers, numbers.shape
        outputs, inputs = numbers.shape
        shape = tuple(scales.shape)
        if scales.numel() == 1:
            block = max(1, outputs), max(1, inputs)
        elif shape in ((outputs,), (outputs, 1)):
            block = 1, inputs
        elif block is None or shape != (-(-outputs // block[0]), -(-inputs // block[1])):
            shapes = f"{list(shape)} scales for {list(numbers.shape)} numbers"
            raise ModelError(f"{name} has {shapes}: must be one, one an output, or one for each weight_block_size")
        self._scales, self._block = scales.float().reshape(-(-outputs // block[0]), -1), block

    @property
    def format(self) -> BlockFormat | None:
        """None for scales whose inputs are no whole blocks."""
        return FORMATS["FP8"] if self.shape[1] % 32 == 0 and self._block[1] % 32 == 0 else None

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read a scale and 32 numbers for each block, see :class:`.stored.InBlocks`."""
        numbers = self._numbers[(slice(first, last),)].view(torch.uint8).unflatten(1, (-1, 32))
        scales = self._of_rows(first, last)[:, : self.shape[1] : 32].contiguous().unsqueeze(-1).view(torch.uint8)
        return torch.cat((scales, numbers), -1).flatten(1)

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        (first, last), columns = whole_cut(cut, self.shape)
        if last <= first:
            return torch.empty(0, max(0, columns[1] - columns[0]))
        numbers = self._numbers[(slice(first, last),)].float() * self._of_rows(first, last)
        return numbers[:, slice(*columns)]

    def _of_rows(self, first: int, last: int) -> torch.Tensor:
        """Scales ``[last - first, in]``."""
        outputs, inputs = self._block
        rows = self._scales[torch.arange(first, last) // outputs]
        return rows.repeat_interleave(inputs, 1)[:, : self.shape[1]]
