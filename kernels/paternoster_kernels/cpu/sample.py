"""A token for each row."""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import require_library
from paternoster_kernels.token_masks import TokenMasks


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    masks: TokenMasks | None = None,
) -> torch.Tensor:
    """Sample each row by itself; what float32 sums round may move a token across the edge of top-p."""
    if logits.dtype not in (torch.float32, torch.bfloat16):
        return reference.sample(logits, temperature, top_k, top_p, min_p, seeds, positions, masks)
    logits = logits.contiguous()
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64)
    columns = [column.contiguous() for column in (temperature, top_k, top_p, min_p.log(), seeds, positions)]
    allowed: tuple[int | None, ...] = (None, 0, None)
    if masks is not None:
        packed, mask_of = masks.packed.contiguous(), torch.full((rows,), -1, dtype=torch.int64)
        mask_of[masks.rows] = torch.arange(len(masks.rows))
        allowed = (packed.data_ptr(), packed.shape[1], mask_of.data_ptr())
    require_library().sample(
        out.data_ptr(),
        logits.data_ptr(),
        logits.dtype == torch.float32,
        *(column.data_ptr() for column in columns),
        *allowed,
        rows,
        vocab,
        torch.get_num_threads(),
    )
    return out
