"""Adapters of a batch's rows: both halves of LoRA, segment by segment."""

from collections.abc import Sequence

import torch

from paternoster_kernels.lora_batch import LoraBatch
from paternoster_kernels.triton.products.lora_expand import lora_expand
from paternoster_kernels.triton.products.lora_shrink import lora_shrink


def add_lora(out: torch.Tensor, x: torch.Tensor, batch: LoraBatch, first: int, widths: Sequence[int]) -> None:
    """Add the products of adapters. A launch has one segment, as adapters of other ranks lie elsewhere."""
    only = torch.zeros(1, dtype=torch.int32, device=x.device)
    for adapter, start, stop in zip(batch.adapters, batch.starts, batch.starts[1:], strict=False):
        if adapter is None:
            continue
        bounds = torch.tensor([0, stop - start], dtype=torch.int32).to(x.device, non_blocking=True)
        begin = 0
        for matrix, width in zip(adapter.matrices[first : first + len(widths)], widths, strict=True):
            if matrix is not None:
                shrunk = lora_shrink(x[start:stop], matrix.down[None], bounds, only)
                scales = torch.full((1,), matrix.scale, dtype=torch.float32, device=x.device)
                columns = out[start:stop, begin : begin + width]
                lora_expand(shrunk, matrix.up.T.contiguous()[None], scales, bounds, only, columns)
            begin += width
