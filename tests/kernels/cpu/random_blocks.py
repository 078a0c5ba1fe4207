"""Blocks whose bytes are random, but for scales, which are numbers of about a hundredth."""

from dataclasses import dataclass

import torch

from paternoster_kernels.blocks import FORMATS, BlockFormat


@dataclass(frozen=True, slots=True)
class BlocksInMemory:
    """Rows of blocks, as :class:`paternoster_kernels.blocks.Rows`."""

    format: BlockFormat
    data: torch.Tensor
    """uint8 ``[out, bytes of a row]``."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.data), self.data.shape[1] // self.format.bytes * self.format.inputs

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        return self.data[first:last]


def random_blocks(name: str, outputs: int, inputs: int, seed: int) -> BlocksInMemory:
    """In the format ``name``; every pattern of bits may come up."""
    found, draw = FORMATS[name], torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (outputs, inputs // found.inputs, found.bytes), generator=draw, dtype=torch.uint8)
    at = 0
    for size, count in found.fields:
        if size == 2 or (name == "FP8" and at == 0):
            dtype = {"INT4_BF16": torch.bfloat16, "FP8": torch.float32}.get(name, torch.float16)
            scales = torch.randn(blocks.shape[:2], generator=draw).mul(0.01).to(dtype).unsqueeze(-1)
            blocks[..., at : at + size] = scales.view(torch.uint8)
        elif size == 1:
            low, high = (110, 130) if name == "MXFP4" else (0, 17)
            blocks[..., at] = torch.randint(low, high, blocks.shape[:2], generator=draw, dtype=torch.uint8)
        at += size * count
    if name == "FP8":
        # What is no number is not compared.
        blocks[..., 4:][blocks[..., 4:] & 127 == 127] = 0
    return BlocksInMemory(found, blocks.flatten(1))
