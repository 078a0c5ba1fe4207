"""Attention on CUDA in which a token's numbers are the same however many new tokens come with it."""

import torch

from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.triton.unified_attention import unified_attention


def paged_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    plan: DeviceBatch,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention by one tile shape and without splits: a prompt's chunks depend on what else is in a step."""
    return unified_attention(queries, cache, plan, scale, window=window, softcap=softcap, sinks=sinks, one_pass=True)
