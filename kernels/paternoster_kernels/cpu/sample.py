"""A token for each row."""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import library


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """As the reference, each row by itself; what float32 sums round may move a token across the edge of top-p."""
    if logits.dtype not in (torch.float32, torch.bfloat16):
        return reference.sample(logits, temperature, top_k, top_p, min_p, seeds, positions)
    logits = logits.contiguous()
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64)
    columns = [column.contiguous() for column in (temperature, top_k, top_p, min_p.log(), seeds, positions)]
    library().sample(
        out.data_ptr(),
        logits.data_ptr(),
        logits.dtype == torch.float32,
        *(column.data_ptr() for column in columns),
        rows,
        vocab,
        torch.get_num_threads(),
    )
    return out
